"""Secrets in text of any form are replaced; what is none stays as it is."""

import time
from urllib.parse import quote

import pytest

from dayahead.core.redaction import public_url, redacted

URLS = [
    ("https://me:secret@host/x", "https://***@host/x"),
    ("postgresql://me:p@ss@host/db", "postgresql://***@host/db"),
    ("s3://key@bucket/x and tcp://a:b@c:1", "s3://***@bucket/x and tcp://***@c:1"),
    ('["https://host/x?token=abc&y=1", "z"]', '["https://host/x?***", "z"]'),
    ("https://me:p?ss@host/a(1)?token=abc", "https://***"),  # port p: it cannot be parsed
    ("https://me:p/ss@host/a", "https://***"),
    ("https://me:80/ss@host/a", "https://***"),  # a port, or the start of a password?
    ("https://me?ss@host/a", "https://***"),
    ("https://me#ss@host/a", "https://***"),
    ("https://me;ss@host/a", "https://***"),
    ("https://me/ss@host/a", "https://***@host/a"),
    ("https://me:p@s/s@host/a", "https://***@host/a"),
    ("https://me:p s's@host/a is gone", "https://***@host/a is gone"),
    ("https://[me@host/a", "https://***"),
    ("https://host/a;token=abc/b", "https://host/a;***"),
    ("https://host/a#token=abc", "https://host/a#***"),
    ("https://host/a?mail=me@host", "https://host/a?***"),
    ("zip://a.csv::HTTPS://me:p@host/a.zip?x=1", "zip://a.csv::HTTPS://***@host/a.zip?***"),
    ("URL('https://host/x?token=abc')", "URL('https://host/x?***')"),
    ("exceeded with url: /a/b?token=abc/c (Caused by", "exceeded with url: /a/b?*** (Caused by"),
]

SECRETS = [
    # Userinfo and queries of URLs.
    'https://host/a?x="HUSH"&y=HUSH2',
    "https://host/a?x='HUSH 1'&y=HUSH2 is gone",
    'fetch "https://host/a?x="HUSH"&y=HUSH2": 404',
    "HTTPS://ME:HUSH@HOST/x",
    "http://me:HUSH@[::1]:5000/x",
    "<https://me:HUSH@host/x>",
    "[https://me:HUSH@host/x](https://host/?sig=HUSH)",
    "(see https://host/x?a=1&b=HUSH).",
    "`https://me:HUSH@host`",
    "`https://host/a?x=HUSH`",
    "https://host/a?x=`HUSH`&y=HUSH",
    "redis://:HUSH@host:6379/0",
    "s3://AKIAXXXXXXXXXXXXXXXX:HUSH/x+HUSH@bucket/key",
    "mysql+pymysql://me:HUSH%40x@host/db?charset=utf8",
    "https://HUSH@host/repository.git",
    "https://me:HUSH\u00e9\u4e2d@host/x",
    "https://me:HUSH$&!*()@host/x",
    "https://host/a?X-Amz-Credential=a%2Fb&X-Amz-Signature=HUSH",
    "https://account.blob.core.windows.net/c/b?sv=2022&sig=HUSH%3D",
    "/a/b?x=HUSH",
    "host/a?se=2026&sp=r&x=HUSH",
    "me:HUSH@host:5432/db refused the connection",
    "me:HUSH@HUSH@host refused the connection",
    "//me:HUSH@host/x",
    "jdbc:postgresql://host/db?user=me&password=HUSH",
    "mongodb+srv://me:HUSH@host/?retryWrites=true",
    "https://me:HUSH@host:notaport/x",
    "HTTPConnectionPool(host='me:HUSH@host', port=80)",
    # The same, percent-encoded, once or more.
    "url%3Ftoken=HUSH",
    "https://host/a%3Ftoken=HUSH",
    "next=https%3A%2F%2Fme%3AHUSH%40host%2Fx",
    "https%253A%252F%252Fhost%252F%253Fx%253DHUSH",
    "a%3Fpassword%3DHUSH%26y%3D1",
    # Names and values: shells, files of settings, connection strings.
    "password=HUSH",
    "PGPASSWORD=HUSH psql",
    "MLFLOW_TRACKING_PASSWORD=HUSH,x;HUSH",
    "export AWS_SECRET_ACCESS_KEY='HUSH x'",
    "aws_secret_access_key = HUSH/+HUSH",
    "aws_session_token=HUSH==",
    "[default]\naws_access_key_id = AKIA\naws_secret_access_key = HUSH\n",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=HUSH==;EndpointSuffix=core",
    "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=HUSH=",
    "BlobEndpoint=https://a/;SharedAccessSignature=sv=2022&sig=HUSH%3D",
    "Server=h;Uid=me;Pwd=HUSH;",
    "Driver={x};PWD={SE}}CRET;HUSH};Server=h",
    "host=h user=me password='it\\'s HUSH' dbname=x",
    "accountkey=HUSH",
    "client_secret: HUSH",
    "api-key: HUSH",
    "X-Api-Key: HUSH",
    "Ocp-Apim-Subscription-Key: HUSH",
    "x-amz-security-token:HUSH",
    "AZURE_STORAGE_SAS_TOKEN=sv=2022&sig=HUSH",
    "password => 'HUSH'",
    "curl --password HUSH https://host",
    "['curl', '--token', 'HUSH', 'https://host']",
    "--api-key=HUSH",
    # Headers.
    "Authorization: Bearer HUSH",
    "authorization: Basic c2VHUSH=",
    "curl -H 'Authorization: token HUSH' https://host",
    "{'Authorization': 'Bearer HUSH'}",
    "Proxy-Authorization=Digest username=me, response=HUSH",
    "Cookie: a=1; session=HUSH",
    "Set-Cookie: session=HUSH; Path=/",
    "refused: Bearer HUSH0123456789",
    # JSON, Python, YAML, more lines than one.
    '{"user": "me", "password": "HUSH"}',
    '{"password":"HUSH \\" HUSH"}',
    '"{\\"password\\": \\"HUSH\\"}"',
    "{'aws_secret_access_key': 'HUSH', 'region': 'x'}",
    "{'token': b'HUSH'}",
    "S3FileSystem(key='HUSH', secret='HUSH')",
    "connect(host='h', password=\"HUSH\")",
    "Login(auth=('me', 'HUSH'))",
    "storage:\n  user: me\n  password: HUSH with blanks\n  host: h",
    "{user: me, password: HUSH, host: h}",
    "- secret: HUSH\n- user: x",
    "password: |\n  HUSH\n  HUSH\nuser: me",
    'password: "HUSH\nHUSH"\nuser: me',
    "password=\n  HUSH",
    "-----BEGIN RSA PRIVATE KEY-----\nHUSH\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nHUSH",
    "<password>HUSH</password>",
]

PLAIN = [
    "no tcp://127.0.0.1:8786, (tcp://[::1]:80).",
    "open `http://127.0.0.1:5000` (`make ui PORT=5001`)",
    "sqlite:////home/me/mlflow.db; run again",
    "sqlite:///C:\\Users\\me\\mlflow.db",
    "C:\\Users\\me\\token\\x.csv: no such file",
    "file:///srv/shop/mlruns and https://host/a/b.parquet",
    "mail me@host, is it?",
    "mailto:me@host.example",
    "git@github.com:me/project.git",
    "python:3.11@sha256:0123abcd",
    "token count = 5",
    "a session has 20 tokens: the last 19 events",
    "n_tokens=5, max_tokens: 7",
    "the key is missing; expected one of a, b",
    "no password: set MLFLOW_TRACKING_PASSWORD, or leave it out",
    "params.yaml: nightly.keys: Input should be a valid string (got 5)",
    "source.password: Input should be a valid string",
    "monkey=1, turkey = 2",
    "bearer of news, Basic settings",
    "passed: 3 of 4 guards; all 8 guards passed",
    "the signature: session -> items",
    "author = me, authors: you",
    "ndcg_at_20 0.1234, 3.2% below its median 0.1300",
    "100%25 and 3%20of 5",
    "a ? b : c",
    "dvc repro -f train; see results/windows.csv",
    "keyboard: x, keys = 3, key: value",
    "2026-01-03T12:30 user 3@home",
    "",
]


@pytest.mark.parametrize(("text", "expected"), URLS)
def test_urls_keep_scheme_host_and_path(text, expected):
    assert redacted(text) == expected


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_replaced_within_any_text(text):
    for around in ("{}", "error: {}; run again", "line\n{}\nline", "({})"):
        assert "HUSH" not in redacted(around.format(text)), redacted(around.format(text))


@pytest.mark.parametrize("text", [text for text, _ in URLS] + SECRETS + PLAIN)
def test_to_redact_again_changes_nothing(text):
    assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize("text", PLAIN)
def test_other_text_stays(text):
    assert redacted(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Server=h;Pwd=abc;Uid=me", "Server=h;Pwd=***;Uid=me"),
        ('{"password": "abc", "user": "me"}', '{"password": "***", "user": "me"}'),
        ("connect(password='abc', port=1)", "connect(password='***', port=1)"),
        ("a:\n  password: abc d\n  host: h", "a:\n  password: ***\n  host: h"),
        (
            "{'Authorization': 'Bearer abc', 'Accept': 'x'}",
            "{'Authorization': '***', 'Accept': 'x'}",
        ),
        ("host=h password=abc dbname=x", "host=h password=*** dbname=x"),
        ("curl --password abc https://host", "curl --password *** https://host"),
    ],
)
def test_text_around_a_secret_stays(text, expected):
    assert redacted(text) == expected


@pytest.mark.parametrize(
    "secret", ["p@ss", "a b", "a/b", "a:b", "a?b", "a#b", "a&b=c", "\u00e9\u2028", "%"]
)
def test_a_quoted_password_of_a_url_is_replaced(secret):
    url = f"postgresql://me:{quote(f'HUSH{secret}HUSH', safe='')}@host/db"
    for _ in range(3):
        assert "HUSH" not in redacted(f"cannot connect to {url} now")
        url = quote(url, safe="")


def test_bytes_that_are_no_utf8_are_escaped():
    assert redacted(b"caf\xe9 \xf0".decode("utf-8", "surrogateescape")) == "caf\\xe9 \\xf0"
    assert redacted("\ud800") == "\\ud800"


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "=" * 200_000, "key" * 60_000, "a;" * 100_000, "://" * 60_000,
             "%41" * 60_000, "?a" * 100_000, "password: " * 20_000, "a:b" * 60_000, "'\"" * 99_999],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_long_text_takes_no_longer_than_its_length(text):
    start = time.process_time()
    redacted(text)
    assert time.process_time() - start < 5


def test_the_public_part_of_a_url_without_text_around_it():
    assert public_url("https://me:a'b \"c@host/x?y") == "https://***@host/x?***"
