"""Random command lines over files of any content, and how a command that got one ends."""

import contextlib
import io
import random
from dataclasses import dataclass
from pathlib import Path

from dayahead.__main__ import app
from dayahead.core.errors import exit_with_message

TIMED = "item_id,event_time\n1,2026-01-05T10:00:00\n2,2026-01-05T10:01:00\n"
FILES = {
    "good.csv": TIMED.encode(),
    "full.csv": b"item_id,event_time,category,price\n1,2026-01-05,1,0.1\n2,2026-01-06,2,0.2\n",
    "holes.csv": b"item_id,event_time,category,price\n1,2026-01-05,,\n2,2026-01-05,77,nan\n",
    "endless.csv": b"item_id,event_time,category,price\n1,2026-01-05,1,inf\n",
    "negative.csv": b"item_id,event_time,category,price\n1,2026-01-05,1,-7\n3,,1,1\n",
    "offset.csv": b"item_id,event_time\n1,2026-01-05T10:00:00+02:00\n",
    "more.csv": b"\xef\xbb\xbfitem_id,event_time,price\r\n2,2026-01-05 10:00:00,x\r\n",
    "unknown.csv": b"item_id,event_time\n77,2026-01-05\n,\n",
    "header.csv": b"item_id,event_time\n",
    "empty.csv": b"",
    "blank.csv": b"\n\n\n",
    "twice.csv": b"item_id,item_id,event_time\n1,2,2026-01-05\n",
    "ragged.csv": b"item_id,event_time\n1\n1,2026-01-05,3\n",
    "words.csv": b"item_id,event_time\none,yesterday\n",
    "large.csv": b"item_id,event_time\n99999999999999999999,2026-01-05\n",
    "early.csv": b"item_id,event_time\n1,0001-01-01\n2,9999-12-31T23:59:59\n",
    "latin.csv": b"item_id,event_time\n\xe9,\xff\n",
    "zeros.csv": b"\0" * 300,
    "quote.csv": b'item_id,event_time\n"1,2026-01-05\n',
    "na\u00efve \u65e5.csv": TIMED.encode(),
}
"""Sessions as --events takes them, good and bad."""
NUMBERS = [
    "0",
    "1",
    "-1",
    "3",
    "10",
    "1e3",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "9" * 30,
    "0x10",
    "\u0663",
]
TEXTS = [
    *(
        "",
        " ",
        "-",
        "--",
        "---x",
        "a,b",
        ",",
        "\t",
        "a\nb",
        "\u00e9",
        "\u65e5\u672c",
        "\udcff",
        "\U0001f600",
        "x" * 300,
    ),
    *("'", '"', "$HOME", "*", "?", "~", "%s", "{0}", "\\", "x=y", "--help", "-h", "None", "null"),
]
PATHS = [
    ".",
    "..",
    "/",
    "/dev/null",
    "/nowhere",
    "a/b",
    "x" * 5000,
    "models",
    "params.yaml",
    "link",
]
RUNS = [
    *(
        "a",
        "b",
        "c",
        "a,b",
        "b,c",
        "c",
        "a,a",
        "a,,b",
        "short",
        "one,two",
        "results",
        "HEAD",
        "HEAD:a",
    ),
    *("HEAD^{tree}", "HEAD~3", "0" * 32, "0" * 40, "torn", "a/windows.csv", "a,missing"),
]
PRESETS = ["g1/gpt2-clm", "g1", "g1/", "g1/nothing", "../params", "/etc/passwd", "G1/GPT2-CLM"]
SESSIONS = [
    "1",
    "1,2",
    "1, 2",
    "9,8",
    "1,,2",
    '"1',
    '"1","2"',
    "1;2",
    "\u0661",
    "-1",
    "1.0",
    "0b1",
    "\u00b2",
]
COLD = ["refuse", "popularity", "model", "POPULARITY", "none"]
VALUES = {
    "recommend": {
        "--session": SESSIONS,
        "--item": SESSIONS,
        "--events": [*FILES],
        "--past": [*FILES],
        "--top-k": NUMBERS,
        "--models": ["models", "features", "torn-model", "empty"],
        "--cold-start": COLD,
        "--exclude-seen": None,
    },
    "compare": {},
    "table": {
        "--format": ["markdown", "latex", "csv", "html", "CSV"],
        "--metrics": ["ndcg_at_20", "recall_at_5,mrr_at_7", "ndcg_at_0", "x_at_1", "ndcg_at_", ","],
        "--baseline": ["a", "b", "c", "x"],
        "--level": NUMBERS,
        "--names": ["runs", "settings", "x"],
        "--intervals": None,
    },
    "similar": {
        "--top-k": NUMBERS,
        "-k": NUMBERS,
        "--by": ["vectors", "pairs", "looks"],
        "--models": ["models", "features", "torn-model", "empty"],
    },
    "preset": {},
    "summary": {},
    "cache": {"--prune": NUMBERS},
    "track": {"--sync": None},
}
"""Options of each verb and what they are meant to be given; None: nothing."""
ARGUMENTS = {
    "compare": (RUNS, 2),
    "table": ([*RUNS, "x=a,b", "x=", "=a"], 2),
    "similar": (SESSIONS, 2),
    "preset": (PRESETS, 1),
}
SOURCES = ("--session", "--item", "--events")
SHARES = {
    "recommend": 40,
    "similar": 10,
    "compare": 15,
    "table": 10,
    "preset": 10,
    "summary": 1,
    "cache": 8,
    "track": 1,
}


def command_line(rng: random.Random) -> list[str]:
    """Return a verb with options and arguments, most of them of the kind that they take."""
    if rng.random() < 0.05:
        return [_any(rng) for _ in range(rng.randrange(4))]
    [verb] = rng.choices([*SHARES], [*SHARES.values()])
    options = [option for option in VALUES[verb] if rng.random() < 0.3]
    if verb == "recommend" and rng.random() < 0.9:
        options = [option for option in options if option not in SOURCES]
        options.append(rng.choice(SOURCES))
    words: list[str] = []
    for option in options:
        values = VALUES[verb][option]
        given = [option] if values is None else [option, _value(rng, values)]
        words += given if rng.random() < 0.97 else given[:1]
    proper, n_proper = ARGUMENTS.get(verb, (TEXTS, 0))
    n_given = n_proper if rng.random() < 0.9 else rng.randrange(4)
    words += [_value(rng, proper) for _ in range(n_given)]
    if rng.random() < 0.05:
        words.insert(rng.randint(0, len(words)), _any(rng))
    return [verb, *words]


def _value(rng: random.Random, proper: list[str]) -> str:
    return rng.choice(proper) if rng.random() < 0.85 else _any(rng)


def _any(rng: random.Random) -> str:
    kinds = [NUMBERS, TEXTS, PATHS, RUNS, PRESETS, SESSIONS, COLD, [*FILES], [*SHARES]]
    return rng.choice(rng.choice(kinds))


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def is_clean(self) -> bool:
        """Whether it ended well, or badly with one message."""
        if "Traceback" in self.out + self.err or self.status not in (0, 1, 2):
            return False
        n_messages = sum(line.startswith("error: ") for line in self.err.splitlines())
        is_usage = "Usage: " in self.err + self.out or "\u256d\u2500 Error" in self.err  # of typer
        return self.status == 0 or n_messages + is_usage == 1


def write_files(folder: Path) -> None:
    """Write FILES."""
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("nowhere")


def ended(words: list[str]) -> Ended:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with exit_with_message():
                app(words, prog_name="dayahead")
        except SystemExit as error:
            status = error.code
    if isinstance(status, str):
        err.write(f"{status}\n")
        status = 1
    return Ended(int(status or 0), out.getvalue(), err.getvalue())
