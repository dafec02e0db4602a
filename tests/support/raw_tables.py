"""Hypothesis strategies for raw tables: values, lines and columns, mostly valid."""

import json
from collections.abc import Callable
from datetime import UTC, date, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from support.raw_oracle import START

EDGES = [0, 1, -1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30]
WORDS = st.text(st.sampled_from("ab ,;\"\n\r\t\x00\u00e9\u2028\U0001f600'\\{}[]"), max_size=6)
NUMBERS = st.one_of(st.integers(-5, 5), st.sampled_from(EDGES))
FLOATS = st.one_of(st.floats(-10, 10), st.sampled_from([1.0, 1e300, -0.0, 2.0**53, 2.0**60]))
WHENS = st.integers(-(10**9), 7_600_000_000_000).map(
    lambda number: (START + timedelta(milliseconds=number)).replace(tzinfo=None)
)
MILLISECONDS = WHENS.map(
    lambda when: (when.replace(tzinfo=UTC) - START) // timedelta(milliseconds=1)
)
WRITTEN = st.one_of(
    WHENS.map(lambda when: when.isoformat(" ", "seconds")),
    WHENS.map(lambda when: when.isoformat("T", "milliseconds") + "Z"),
    WHENS.map(lambda when: when.isoformat(" ", "seconds") + " UTC"),
    WHENS.map(lambda when: when.date().isoformat()),
)
ODD = [
    "",
    "NULL",
    "nan",
    "0x10",
    "0xFFFFFFFFFFFFFFFF",
    " 7",
    "7 ",
    "+7",
    "007",
    "1_0",
    "1.0",
    "1e3",
]
ODD_TIMES = ["2019-02-30", "2019-13-01", "10000-01-01", "2019-10-01 25:00:00", "today", "2019-1-1"]


def seldom(usual: st.SearchStrategy, odd: st.SearchStrategy) -> st.SearchStrategy:
    """Mostly the usual: otherwise hardly any table would be valid."""
    return st.integers(0, 19).flatmap(lambda n: odd if n == 0 else usual)


def cells(unit: str) -> st.SearchStrategy[tuple[str, ...]]:
    """Rows of csv: session, item, time, price."""
    odd = st.one_of(st.sampled_from(ODD), WORDS, NUMBERS.map(str))
    time = MILLISECONDS.map(str) if unit == "ms" else WRITTEN
    return st.tuples(
        seldom(st.one_of(st.sampled_from("ab"), WORDS), odd),
        seldom(st.integers(-(2**63), 2**63 - 1).map(str), odd),
        seldom(time, st.one_of(odd, st.sampled_from(ODD_TIMES))),
        seldom(st.one_of(st.just(""), st.floats(allow_nan=False).map(repr)), odd),
    )


JSON_ODD = st.one_of(
    st.none(), WORDS, NUMBERS, FLOATS, st.booleans(), st.sampled_from(ODD),
    st.lists(st.integers(0, 3)),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 3), max_size=2),
)  # fmt: skip


@st.composite
def json_lines(draw: st.DrawFn) -> list[bytes]:
    """Objects with members of one type, sometimes of another, missing, duplicate or broken."""
    session = draw(st.sampled_from([st.sampled_from("ab"), WORDS, NUMBERS]))
    item = draw(st.sampled_from([st.integers(-(2**63), 2**63 - 1), st.integers(0, 9).map(str)]))
    time = draw(st.sampled_from([MILLISECONDS, MILLISECONDS.map(str)]))
    members = {"session": session, "item": item, "time": time, "price": FLOATS}
    lines = []
    for _ in range(draw(st.integers(1, 10))):
        entry = {name: draw(seldom(values, JSON_ODD)) for name, values in members.items()}
        entry["junk"] = draw(JSON_ODD)
        for name in [name for name in entry if draw(st.integers(0, 30)) == 0]:
            del entry[name]
        line = json.dumps(entry, ensure_ascii=draw(st.booleans())).encode()
        broken = [
            line,
            line[:-1],
            line + b"{}",
            b"[1]",
            b"null",
            b"",
            b"\xff",
            line[:-1] + b', "item": 1}',
        ]
        lines.append(draw(seldom(st.just(line), st.sampled_from(broken))))
    return lines


COLUMNS: list[Callable[[list[int]], pa.Array]] = [
    lambda n: pa.array(n, pa.int64()),
    lambda n: pa.array(n, pa.int8()),
    lambda n: pa.array(n, pa.int64()).cast(pa.uint64()),
    lambda n: pa.array([None if i % 2 else 2**64 - 1 for i in n], pa.uint64()),
    lambda n: pa.array([float(i) for i in n], pa.float64()),
    lambda n: pa.array([float(i) if i else float("nan") for i in n], pa.float32()),
    lambda n: pa.array([i + 0.5 for i in n], pa.float64()),
    lambda n: pa.array([str(i) for i in n], pa.string()),
    lambda n: pa.array([str(i) for i in n], pa.large_string()),
    lambda n: pa.array([str(i) for i in n], pa.string_view()),
    lambda n: pa.array([str(i).encode() for i in n], pa.binary()),
    lambda n: pa.array([str(i).encode() for i in n], pa.large_binary()),
    lambda n: pa.array([b"%04d" % i for i in n], pa.binary(4)),
    lambda n: pa.array([b"\xff" for _ in n], pa.binary()),
    lambda n: pa.array([str(i) for i in n]).dictionary_encode(),
    lambda n: pa.array(n, pa.int64()).dictionary_encode(),
    lambda n: pa.array([None if i % 3 else "NULL" for i in n], pa.string()).dictionary_encode(),
    lambda n: pa.nulls(len(n)),
    lambda n: pa.array([i % 2 == 0 for i in n], pa.bool_()),
    lambda n: pa.array([Decimal(i) / 2 for i in n], pa.decimal128(10, 2)),
    lambda n: pa.array([[i] for i in n], pa.list_(pa.int64())),
    lambda n: pa.array([{"x": i} for i in n], pa.struct([("x", pa.int64())])),
    lambda n: pa.array([date(2019, 10, 1) + timedelta(i) for i in n], pa.date32()),
    lambda n: pa.array([date(2019, 10, 1) + timedelta(i) for i in n], pa.date64()),
    lambda n: pa.array([timedelta(i) for i in n], pa.duration("us")),
    lambda n: pa.array([1000 * i for i in n], pa.time64("us")),
    lambda n: pa.array([1000 * i + 1 for i in n], pa.timestamp("ns")),
    lambda n: pa.array([START + timedelta(i) for i in n], pa.timestamp("s", "UTC")),
    lambda n: pa.array([2**62] * len(n), pa.int64()).cast(pa.timestamp("ms")),
]
