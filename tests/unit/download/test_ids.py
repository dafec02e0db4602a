"""Ids: several columns as one, numbers in one spelling, and reports of several spellings."""

from collections import Counter, defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.errors import SourceError
from dayahead.core.files import read_json
from dayahead.download.ids import canonical, joined
from dayahead.download.stage import download
from support.raw_logs import csv, log_of, quality_of

TEXT = st.text(st.sampled_from("ab:\\\\"), max_size=4) | st.none()
KEY = {"columns": {"session_id": ["user", "visit"], "user_id": "user"}}
HEADER = "user,visit,item,time"


def column(folder, name):
    paths = sorted((folder / "data/raw").glob("events-*.parquet"))
    return [value for path in paths for value in pq.read_table(path)[name].to_pylist()]


@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1))
def test_no_two_keys_share_an_id_and_one_without_a_value_has_none(rows):
    found = joined([pa.array(each, pa.string()) for each in zip(*rows, strict=True)]).to_pylist()
    assert [each is None for each in found] == [None in row for row in rows]
    whole = {row for row in rows if None not in row}
    assert len({each for each in found if each is not None}) == len(whole)


def test_sessions_that_are_counted_for_each_user_are_apart(tmp_path):
    rows = csv("u,1,7,2019-10-01", "v,1,7,2019-10-01", "a:b,1,7,2019-10-01", ",1,7,2019-10-01",
               "u,,7,2019-10-01", header=HEADER)  # fmt: skip
    found = quality_of(tmp_path, rows, quality={"nulls": {"session_id": 0.4}}, **KEY)
    assert column(tmp_path, "session_id") == ["u:1", "v:1", "a\\:b:1"]
    assert found["nulls.session_id"]["found"] == 2
    assert read_json(tmp_path / "data/raw/manifest.json")["dropped"] == {"no session_id": 2}


WRITTEN = [" 17", "17.0", "0017", "17", "-3.00", "17. ", str(2**63 - 1)]
READ = [17, 17, 17, 17, -3, 17, 2**63 - 1]


def test_ids_of_type_int_have_one_spelling(tmp_path):
    rows = csv(*(f"{each},{each},{each},2019-10-01" for each in WRITTEN), header=HEADER)
    quality_of(
        tmp_path, rows,
        columns={"session_id": [{"column": "visit", "type": "int"}, "user"],
                 "user_id": {"column": "user", "type": "int"}},
    )  # fmt: skip
    assert column(tmp_path, "user_id") == [str(each) for each in READ]
    assert column(tmp_path, "item_id") == READ
    assert column(tmp_path, "session_id") == [
        f"{number}:{text}" for number, text in zip(READ, WRITTEN, strict=True)
    ]


@pytest.mark.parametrize("bad", ["17.5", "1e3", "x", f"{2**53 + 2}.0", "1 7", "0x11"])
def test_what_is_no_whole_number_is_an_error_that_names_the_line(tmp_path, bad):
    user = {"columns": {"session_id": "visit", "user_id": {"column": "user", "type": "int"}}}
    with pytest.raises(SourceError, match=r"0\.csv, line 3: column user: expected a whole number"):
        quality_of(
            tmp_path, csv("1,1,1,2019-10-01", f"{bad},1,1,2019-10-01", header=HEADER), **user
        )


def test_types_of_parquet_give_the_same_ids(tmp_path):
    users = [pa.array([17, None]), pa.array([17.0, None]), pa.array(["17", None]),
             pa.array(["17.0", None])]  # fmt: skip
    for number, user in enumerate(users):
        table = {"user": user, "session": ["a"] * 2, "item": [1] * 2, "time": ["2019-10-01"] * 2}
        pq.write_table(pa.table(table), tmp_path / f"{number}.parquet")
    urls = [str(tmp_path / f"{number}.parquet") for number in range(len(users))]
    dataset = log_of(tmp_path, source={"urls": urls, "format": "parquet"},
                     columns={"user_id": {"column": "user", "type": "int"}})  # fmt: skip
    download(dataset, "mine", tmp_path / "data/raw")
    assert column(tmp_path, "user_id") == ["17", None] * len(users)


SPELLED = {"columns": {"session_id": "visit", "user_id": "user"}}


def test_an_id_in_two_spellings_is_said_with_the_setting_that_reads_it_as_one(tmp_path, caplog):
    first = csv("17,a,1,2019-10-01", "18,a,1,2019-10-01", header=HEADER)
    second = csv("17.0,b,1,2019-10-02", "19.0,b,1,2019-10-02", "17.0,b,2,2019-10-02", header=HEADER)
    for _ in range(2):  # the second time, the files come from the cache
        found = quality_of(tmp_path, first, second, **SPELLED)["spellings.user_id"]
        assert (found["found"], found["of"], found["worst"]) == (2, 5, "66.67% 1.csv")
        assert found["examples"] == ["'17' and '17.0'"]
    assert "'17' and '17.0'" in (tmp_path / "data/raw/quality.md").read_text()
    line = "quality: user_id: one id in two spellings, such as '17' and '17.0'; if they are one, "
    line += "set columns.user_id: {column: user, type: int}"
    assert [r.getMessage() for r in caplog.records].count(line) == 2
    with pytest.raises(
        SourceError, match=r"40\.00% of 5 rows .* type: int}, or raise quality\.spell"
    ):
        quality_of(tmp_path, first, second, quality={"spellings": 0.1}, **SPELLED)
    as_numbers = {"columns": {"session_id": "visit", "user_id": {"column": "user", "type": "int"}}}
    assert "spellings.user_id" not in quality_of(tmp_path, first, second, **as_numbers)


def test_numbers_with_zeros_in_front_are_no_defect_by_themselves(tmp_path, caplog):
    rows = csv(*(f"00{n},a 0,1,2019-10-01" for n in range(12, 20)), header=HEADER)
    assert not [check for check in quality_of(tmp_path, rows, **SPELLED) if "spell" in check]
    assert "spelling" not in caplog.text


IDS = st.sampled_from(["7", "7.0", "07", "007.00", " 7", "7 ", "70", "0", "00", "0.0", "-7", "-7.0",
                       "a", " a", "a0", "0a", "1.0.0", ".0", "7.5", ""])  # fmt: skip


@pytest.mark.long
@given(files=st.lists(st.lists(IDS, min_size=1, max_size=6), min_size=1, max_size=3))
@settings(max_examples=40)
def test_counts_of_spellings_agree_with_plain_python(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("log")
    texts = [csv(*(f"{each},a,1,2019-10-01" for each in ids), header=HEADER) for ids in files]
    found = quality_of(folder, *texts, **SPELLED)
    spellings = defaultdict(set)
    counts = Counter(each for ids in files for each in ids if each)
    for text in counts:
        spellings[plain(text)].add(text)
    odd = sum(
        n for text, n in counts.items() if text != plain(text) and len(spellings[plain(text)]) > 1
    )
    assert found.get("spellings.user_id", {"found": 0})["found"] == odd


def plain(text):
    text = text.strip()
    try:
        return str(int(text.split(".")[0] if text.split(".")[1:] in ([], ["0"], ["00"]) else "x"))
    except ValueError:
        return text


def test_ids_that_are_no_numbers_keep_their_zeros():
    ids = ["0a", "1.0.0", "00-1", "1.50", "a.0"]
    assert canonical(pa.array(ids)).to_pylist() == ids
