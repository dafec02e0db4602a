"""Text without secrets, for messages, logs, files and trackers.

Hidden, also if percent-encoded, are: all parts of a URL except scheme, host and path; a query; text
before `@host`; and the value of a name that ends in password, token, key and the like.
"""

import re
from urllib.parse import unquote, urlsplit

CHAIN = re.compile(r"::(?=\w+://)")
"""Separator of the URLs of a chain, such as zip://a.csv::https://host/a.zip."""
_MOST_ENCODINGS = 3
_HIDDEN = "***"
# A quote ends a URL unless more of it follows, as in https://host/?x="a"&y=b
_PART = r"""(?:="[^"\n]*"|='[^'\n]*'|[^\s'"`<>]|["'`](?=[\w&%=]))"""
_END = r"(?<![.,;:)}])"
# The part of a URL within a text after its scheme; a password may contain blanks and quotes.
_URL = re.compile(rf"(?<=://)(?:[^/\n]*@)?(?:(?!::\w+://){_PART})*{_END}")
_QUERY = re.compile(rf"\?[\w.%~-]+={_PART}*{_END}")
_USER = re.compile(
    r"(?<![\w@.:%-])(?!mailto:)[\w.%+~-]*:(?!//|\\)[^\s/'\"<>]{1,256}@(?!sha\d+:)(?=[\w\[])"
)
_PRIVATE_KEY = re.compile(r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+(?=\S*\d)[\w+/=.~-]{8,}")
_FIELD = re.compile(
    r"""(?ix)
    (?P<option>(?<![\w-])--[\w-]*?)?
    (?: (?P<header>authorization|cookie)
      | passw(?:or)?d | passphrase | pwd | secret | token | credentials?
      | (?:api|access|account|private|secret|shared|signing|subscription)[-_ ]?key
      | (?P<common>(?<![a-z])(?:key|pass|sig|auth)|(?-i:Key)|signature) )
    (?P<quote>\\*["'])?
    (?P<sign>\s*={1,3}>?\s* | [ \t]*:(?!//|:)[ \t]* | >(?=[^<]*</) | (?(option),?[ \t]+(?!-)|(?!)))
    """
)
"""A name and the separator before its value; common names count only with an equals sign."""
_QUOTED = re.compile(r"""(?is)[bu]?(?P<quote>\\*["'])(?:(?!(?P=quote))(?:\\.|[^\\]))*(?P=quote)?""")
_GROUP = re.compile(r"\{(?:[^{}]|\}\})*\}|\([^)]*\)|\[[^\]]*\]")
_ELEMENT = re.compile(r"[^<]*")
_LINES = re.compile(r"[|>][-+]?[ \t]*(?:\n[ \t]+[^\n]*)+")
"""A text of several lines in YAML."""
_LINE = re.compile(r"[^\n]+")
# A sign ends a value before a blank and before the next name, as in Pwd=a;b;Server=c
_WORD = re.compile(r"""(?:(?![,;&)\]}]{1,3}(?:\s|\Z|[\w .-]{1,64}=))(?:[^\s"'<]|["'](?=\w)))+""")
_LAST_WORD = re.compile(rf"{_WORD.pattern}(?=[,;&)\]}}]|[ \t]*(?:\n|\Z))")
_INDENTED = re.compile(r"[\s-]*[\w-]*\Z")
"""Text before a name that is the first on its line."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTES = range(0xDC80, 0xDD00)
"""Surrogates that represent a byte that is not UTF-8, in file names and arguments."""


def redacted(text: str) -> str:
    """Return text that may be shown and stored: without secrets, and valid UTF-8.

    If it is uncertain what is secret, more is left out rather than less.
    """
    return _redacted(utf8(text), _MOST_ENCODINGS)


def utf8(text: str) -> str:
    r"""Return text that can be encoded: a byte that is not UTF-8 is written out, such as \xff."""
    return _SURROGATE.sub(_written_out, text)


def public_url(url: str) -> str:
    """Return scheme, host and path of a URL: the rest may be secret.

    Where it is not certain which part is which, the result ends in ://***.
    """
    parts = (each.partition("://") for each in CHAIN.split(url))
    return "::".join(
        f"{scheme}{mark}{_public(rest) if mark else ''}" for scheme, mark, rest in parts
    )


def _redacted(text: str, encodings: int) -> str:
    text = _PRIVATE_KEY.sub(rf"\1{_HIDDEN}", text)
    text = _URL.sub(lambda match: _public(match[0]), text)
    text = _USER.sub(f"{_HIDDEN}@", _QUERY.sub(f"?{_HIDDEN}", text))
    text = _BEARER.sub(rf"\1 {_HIDDEN}", _without_values(text))
    if not encodings:
        return text
    return re.sub(r"[^\s\"'<>]+", lambda match: _decoded(match[0], encodings - 1), text)


def _decoded(word: str, encodings: int) -> str:
    """Redact a percent-encoded word; one without secrets stays encoded."""
    plain = utf8(unquote(word)) if "%" in word else word
    found = word if plain == word else _redacted(plain, encodings)
    return word if found == plain else found


def _without_values(text: str) -> str:
    parts, end = [], 0
    for field in _FIELD.finditer(text):
        if field.start() >= end and (value := _value(field)):
            quote = value.groupdict().get("quote") or ""
            parts += [text[end : field.end()], f"{quote}{_HIDDEN}{quote}"]
            end = value.end()
    return "".join([*parts, text[end:]])


def _value(field: re.Match[str]) -> re.Match[str] | None:
    """Return the value that follows a name; None if it is probably part of a sentence."""
    text, sign = field.string, field["sign"].strip()
    is_bare = sign == ":" and not field["quote"]
    if field["common"] and not sign.startswith("="):
        return None
    kinds = [_QUOTED, _GROUP, _WORD]
    if field["header"] and not field["quote"]:
        kinds = [_LINE]
    elif sign == ">":
        kinds = [_ELEMENT]
    elif is_bare:
        begins = _INDENTED.match(text, text.rfind("\n", 0, field.start()) + 1, field.start())
        kinds = [_LINES, _QUOTED, _LINE if begins else _LAST_WORD]
    found = (kind.match(text, field.end()) for kind in kinds)
    return next((each for each in found if each), None)


def _public(rest: str) -> str:
    place, mark, hidden = re.split(r"([?#;]|$)", rest, maxsplit=1)
    authority, slash, _ = place.partition("/")
    is_host = "@" in authority or (slash and ":" not in authority)  # me:1/2@host: 1/2 is a password
    try:
        _ = urlsplit(f"//{authority}").port  # raises if a password was parsed as a port
    except ValueError:
        return _HIDDEN
    if "@" in rest[len(authority) :] and not is_host:
        return _HIDDEN
    _, at, public = place.rpartition("@")
    return f"{_HIDDEN * bool(at)}{at}{public}{mark}{_HIDDEN * bool(hidden)}"


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if code in _BYTES else f"\\u{code:04x}"
