"""JSON: declared types rule, and Arrow's path gives what reading each value gives."""

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dayahead.core.columns import TIMESTAMP
from dayahead.core.errors import SourceError
from dayahead.dataset.schema import DatasetConfig
from dayahead.download import batches, json_lines, text
from dayahead.download.events import source_columns, to_events
from support.careless_logs import batches_of, left_out, rows_of
from support.sources import a_dataset

TEXT = {"session": pa.string()}


def jsonl(*entries: object) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def read(tmp_path, content, columns=None, **source):
    return batches_of(tmp_path / "a.jsonl", content, columns, format="jsonl", **source)


@pytest.mark.parametrize(
    ("written", "wanted", "found"),
    [
        ("17", pa.string(), "17"),
        ("17.0", pa.string(), "17"),
        ("17.50", pa.string(), "17.50"),
        ("123456789012345678901234567890", pa.string(), "123456789012345678901234567890"),
        ("9007199254740993.0", pa.string(), "9007199254740993.0"),
        ("true", pa.string(), "true"),
        ("NaN", pa.string(), None),
        ('"\\ud83d!"', pa.string(), "\\ud83d!"),
        ('"tab\there"', pa.string(), "tab\there"),
        ('"none"', pa.string(), None),
        ('"17"', pa.int64(), "17"),
        ("-0", pa.int64(), "0"),
        ("true", pa.int64(), "1"),
        ("1e3", TIMESTAMP, "1000"),
        ("Infinity", pa.float64(), "Infinity"),
    ],
)
def test_values_become_the_declared_type(tmp_path, written, wanted, found):
    odd = f'{{"session": {written}}}\n{{"session": "x"}}\n{{"session": 5}}\n'.encode()
    rows = rows_of(read(tmp_path, odd, {"session": wanted}, nulls=("none",)))
    assert rows == [(found,), ("x",), ("5",)]


def test_nulls_and_absent_keys_say_nothing_about_types(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BLOCK", 5000)
    entries = [{"session": None}] * 800 + [{}] * 800 + [{"session": 7}, {"session": "b"}]
    rows = rows_of(read(tmp_path, jsonl(*entries), TEXT))
    assert rows[:1600] == [(None,)] * 1600
    assert [str(row[0]) for row in rows[1600:]] == ["7", "b"]
    with pytest.raises(SourceError, match="no column session; it has user"):
        read(tmp_path, jsonl(*[{"user": 1}] * 2000), TEXT)


def test_bad_lines_are_counted_with_their_numbers(tmp_path):
    lines = [b" ", b'{"session": 1}', b"{", b'{"session": [1]}', b'{"session": "K\xe4se"}', b"7"]
    content = b"\n".join(lines)
    found = batches_of(tmp_path / "a", content, TEXT, format="jsonl", is_strict=False)
    assert rows_of(found) == [("1",), ("K\\xe4se",)]
    assert left_out(found) == {"unreadable": [1, 2, 4]}
    assert [each.partition(":")[0] for each in found[0].errors] == [
        "a, line 3", "a, line 4", "a, line 6"
    ]  # fmt: skip
    assert found[0].location(1) == "a, line 5"
    assert found[0].undecodable.tolist() == [3]


NESTED = [
    {"u": {"id": 1}, "events": [{"a": 1, "k": "x"}, {"a": "2"}]},
    {"u": None, "events": []},
    {"events": None},
    {"u": {"id": "z"}, "events": [{"a": 3, "k": "y"}, None]},
]
PATHS = {"u.id": pa.string(), "events.a": pa.int64(), "events.k": pa.string()}


@pytest.mark.parametrize("block", [10, 1 << 20])
def test_paths_and_lists(tmp_path, monkeypatch, block):
    monkeypatch.setattr(batches, "BLOCK", block)
    found = read(tmp_path, jsonl(*NESTED), PATHS, explode="events")
    assert [tuple(value and str(value) for value in row) for row in rows_of(found)] == [
        ("1", "1", "x"), ("1", "2", None), ("z", "3", "y"), ("z", None, None)
    ]  # fmt: skip
    assert found[-1].location(found[-1].table.num_rows - 1) == "a.jsonl, line 4, element 4"


def test_elements_that_are_values_and_names_with_dots(tmp_path):
    entries = [{"u.id": "a", "u": {"id": "b"}, "i": [1, 2]}, {"u": {"id": "c"}, "i": [3]}]
    columns = {"u.id": pa.string(), "i": pa.int64()}
    rows = rows_of(read(tmp_path, jsonl(*entries), columns, explode="i"))
    assert [(user, int(item)) for user, item in rows] == [("a", 1), ("a", 2), ("c", 3)]


def test_where_reads_paths(tmp_path):
    found = read(tmp_path, jsonl(*NESTED), PATHS, explode="events", where={"events.k": ("x",)})
    assert left_out(found) == {"source.where events.k": [1, 2, 3]}


@pytest.mark.parametrize(
    "content",
    [
        b'[{"session": "a\\n"},\n {"session": 2}]',
        b' [\n  {\n "session":\n "a\\n"\n }, {"session": 2}\n]\n',
        b'{\n  "session": "a\\n"\n}\n{\n  "session": 2\n}\n',
        b'[{"session": "a\\n"}]\n[]\n[{"session": 2}]\n',
    ],
)
def test_an_array_of_objects_or_objects_over_several_lines(tmp_path, monkeypatch, content):
    for chunk in (3, 1 << 20):
        monkeypatch.setattr(json_lines, "_CHUNK", chunk)
        assert rows_of(read(tmp_path, content, TEXT)) == [("a\n",), ("2",)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"session": 1}, 2]', "object 2: not JSON: expected an object, found ',2"),
        (b'[{"session": 1}, {"session"', "object 2: not JSON"),
        (b'[{"session": 1}, {"session": 2},\n', "after object 2: the array ends without its ]"),
        (b'[{"session": 1}]\n[{"session": 2}\n', "after object 2: the array ends without its ]"),
        (b"session,item\na,1\n", "looks like csv. Set source.format to csv"),
        (b'{"session": {"id": 1}}\n', "line 1: column session holds a record. Name a field"),
        (b'{"user": {"id": 1}}\n', "no column session; it has user, user.id"),
        (b'{"session": 1}{"session": 2}\n', "line 1: not a JSON object: Extra data"),
    ],
)
def test_what_cannot_be_read_names_the_cure(tmp_path, content, message):
    with pytest.raises(SourceError, match=message):
        read(tmp_path, content, TEXT)


def test_a_list_that_no_record_has_is_named(tmp_path):
    with pytest.raises(SourceError, match=r"no column carts; it has events, .*source\.explode"):
        read(tmp_path, jsonl(*NESTED), PATHS, explode="carts")
    with pytest.raises(SourceError, match=r"line 1: expected a list in u \(source\.explode\)"):
        read(tmp_path, jsonl(*NESTED), {"u.id": pa.string()}, explode="u")


def test_lists_that_no_setting_reaches_are_named(tmp_path):
    list_of_lists = {"sessions": NESTED}
    paths = {"sessions.events.i": pa.int64()}
    for columns in (paths, TEXT):
        with pytest.raises(SourceError, match=r"no column sessions\.events; it has sessions\. "):
            read(tmp_path, jsonl(list_of_lists), columns, explode="sessions.events")
    with pytest.raises(SourceError, match=r"no column events\.a.*; it has .*source\.explode"):
        read(tmp_path, jsonl(NESTED[0]), PATHS)
    deep = {"a": {"b": {"events": []}}}
    assert read(tmp_path, jsonl(deep), {"a.b.events.i": pa.int64()}, explode="a.b.events")
    outside = read(tmp_path, jsonl({"session": "s", "events": [1, 2]}), TEXT, explode="events")
    assert rows_of(outside) == [("s",), ("s",)]


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_any_line_ends_and_none_in_messages(tmp_path, monkeypatch, end):
    monkeypatch.setattr(text, "_CHUNK", 16)  # a chunk ends between both characters
    lines = [json.dumps({"session": f"s{n}"}) for n in range(9)]
    content = end.join(lines).encode()
    assert rows_of(read(tmp_path, content, TEXT)) == [(f"s{n}",) for n in range(9)]
    damaged = content + end.encode() + b"\0\0"
    with pytest.raises(SourceError, match=r"line 10: .*found \\x00\\x00\. quality\.unreadable"):
        read(tmp_path, damaged, TEXT)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([2**53 + 1, 2**63, -(2**70)]),
    st.floats(), st.sampled_from([1.0, -0.0, 2.0**53, 1e300]),
    st.text("ab\u00e9\ud83d\n", max_size=3),
    st.sampled_from(["7", "1.0", "none", "2024-03-04"]), st.lists(st.integers(0, 2), max_size=2),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 2), max_size=1),
)  # fmt: skip
RECORDS = st.lists(
    st.dictionaries(st.sampled_from(["session", "item", "time", "price", "x"]), VALUES),
    min_size=1, max_size=12,
)  # fmt: skip
ONE_KIND = st.sampled_from(
    [st.integers(-5, 5), st.floats(), st.sampled_from([1.0, 2.0, None]), st.text("a7", max_size=2),
     st.booleans(), st.one_of(st.none(), st.integers(0, 2**60))]
)  # fmt: skip


@st.composite
def uniform_records(draw):
    kinds = {name: draw(ONE_KIND) for name in ("session", "item", "time", "price")}
    return [
        {name: draw(kind) for name, kind in kinds.items()} for _ in range(draw(st.integers(1, 8)))
    ]


DATASETS = [
    a_dataset(
        source={"format": "jsonl", "nulls": ["none"]},
        columns={"session_id": "session", "item_id": {"column": "item", "type": kind}},
        time={"unit": unit},
        features={"price": {"kind": "number", "column": "price"}},
        quality={"unreadable": 1},
    )
    for kind in ("int", "string")
    for unit in ("s", "ms")
]


def events_of(path, content: bytes, dataset: DatasetConfig) -> list[object]:
    columns = source_columns(dataset)
    found = batches_of(
        path, content, columns, is_strict=False, format="jsonl", nulls=dataset.source.nulls
    )
    events, start = [], 0
    for raw in found:
        batch = to_events(raw, dataset, start)
        events += [list(row.values()) for row in batch.table.to_pylist()]
        start += raw.n_rows
    return events


@pytest.mark.long
@given(st.one_of(RECORDS, uniform_records()), st.sampled_from(DATASETS), st.integers(1, 300))
@settings(max_examples=150, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_arrow_and_blocks_change_nothing(tmp_path, records, dataset, block):
    """The same events whether lines are read by Arrow or value by value, in one block or many."""
    content = jsonl(*records, {"session": "a", "item": 1, "time": 1, "price": 1})
    results = []
    for size, is_fast in ((1 << 20, True), (1 << 20, False), (block, True)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batches, "BLOCK", size)
            if not is_fast:
                patch.setattr(json_lines._JsonFile, "_fast", lambda *_: None)
            results.append(events_of(tmp_path / "a.jsonl", content, dataset))
    assert results[0] == results[1] == results[2]
