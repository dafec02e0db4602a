"""The table of items in the windows: compared with plain Python, and never ahead of its time."""

import logging
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import DataError
from dayahead.dataset.manifest import RawManifest
from dayahead.windows.metadata import ItemStatistics
from support.builders import dataset_config, events, random_log, session
from support.item_tables import ITEMS, held, item_dataset, random_items, table_of
from support.window_folders import bytes_in

LOG = events(
    session("a", [1, 2], "2026-01-01 09:00")
    + session("b", [2, 1], "2026-01-02 09:00")
    + session("c", [3, 1], "2026-01-03 09:00")
)
END = "2026-01-04"
BRANDS = {"available_until": None, "features": {"brand": {"kind": "categorical", "column": "b"}}}
PLAIN = item_dataset(**BRANDS, vectors=None)


def row(item, since, brand=None, **more):
    return {"item_id": item, "event_time": since, "brand": brand, **more}


def brands(*rows):
    return [table_of(rows).select(["item_id", "event_time", "row", "brand"])]


def values_of(folder, column):
    """The values of a column by index, unknown as None."""
    table = folder.vocabulary(column)
    return [None, None, *table["value"].to_pylist()]


def events_of(folder, column):
    """(item, time, value) of every event, decoded."""
    items, values = values_of(folder, "item_id"), values_of(folder, column)
    found = []
    for window in folder.windows:
        table = folder.read(window, "all", ["item_id", "event_time", column])
        item, time, value = (table[name].combine_chunks().flatten().to_pylist()
                             for name in table.column_names)  # fmt: skip
        end = folder.ends[window.name]
        found += [(items[i], t, end, values[v]) for i, t, v in zip(item, time, value, strict=True)]
    return found


def rows_of(tables):
    return [row for table in tables for row in table.to_pylist()]


def at(microseconds):
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "window"),
    [(1, {}), (2, {"grace": 300}), (3, {"unit": "hour"}), (4, {"overrun": "keep"})],
)
def test_events_have_the_values_of_the_row_that_holds(run, seed, window):
    """Of an event after its window's end, those at that end."""
    tables = random_items(seed, 4)
    folder = run(random_log(seed, 4), item_dataset(), items=tables, log_end="2026-01-05", **window)
    n_held = n_after = 0
    for column in ("brand", "size"):
        for item, time, end, value in events_of(folder, column):
            moment = min(time, at(end - 1))
            expected = held(rows_of(tables), item, moment)
            assert value == (expected and expected[column])
            n_held += expected is not None
            n_after += moment < time
    assert n_held > 50
    assert (n_after > 0) == ("grace" in window or "overrun" in window)


@pytest.mark.parametrize(("seed", "window"), [(5, {}), (6, {"unit": "hour", "min_sessions": 2})])
def test_a_row_for_each_item_and_window_in_which_it_changed(run, seed, window):
    tables = random_items(seed, 4)
    folder = run(random_log(seed, 4), item_dataset(), items=tables, log_end="2026-01-05", **window)
    items, brand = values_of(folder, "item_id"), values_of(folder, "brand")
    rows = rows_of(tables)
    for each in folder.windows:
        end = at(folder.ends[each.name] - 1)
        known = {item: held(rows, item, end) for item in {r["item_id"] for r in rows}}
        expected = {item: row for item, row in known.items() if row is not None}
        found = folder.items_at(each).rows
        assert found["item_id"].to_pylist() == sorted(found["item_id"].to_pylist())
        assert {
            items[i]: (brand[b], until)
            for i, b, until in zip(
                *(found[name].to_pylist() for name in ("item_id", "brand", "available_until")),
                strict=True,
            )
        } == {item: (row["brand"], row["available_until"]) for item, row in expected.items()}
    order = list(zip(*(folder.items[n].to_pylist() for n in ("first_window", "item_id")),
                     strict=True))  # fmt: skip
    assert order == sorted(set(order))


def test_items_without_a_click_are_in_the_vocabulary(run):
    tables = brands(
        row(3, "2025-06-01", "acme"),
        row(9, "2026-01-02 10:00", "bolt"),
        row(8, "2026-01-04 10:00", "late"),
    )
    folder = run(LOG, PLAIN, items=tables, log_end=END)
    found = folder.vocabulary("item_id").to_pydict()
    names = ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert found["value"] == [1, 2, 3, 9]
    assert found["first_window"] == [names[0], names[0], names[0], names[1]]
    assert found["events"] == [3, 2, 1, 0]
    first = [f"{time:%F %R}" for time in found["first_time"]]
    assert first == ["2026-01-01 09:00", "2026-01-01 09:01", "2026-01-03 09:00", "2200-01-01 00:00"]
    assert folder.vocabulary("brand")["value"].to_pylist() == ["acme", "bolt"]
    assert folder.vocabulary("brand")["first_window"].to_pylist() == names[:2]
    assert folder.vocabulary("brand")["events"].to_pylist() == [1, 0]


def test_rows_of_windows_that_are_not_kept_are_known_in_the_next(run):
    tables = brands(row(1, "2025-01-01", "a"), row(2, "2026-01-02 10:00", "b"))
    log = events(
        session("a", [1, 2], "2026-01-01 09:00")
        + session("b", [1, 2], "2026-01-01 10:00")
        + session("c", [2, 1], "2026-01-02 09:00")
        + session("d", [3, 1], "2026-01-03 09:00")
        + session("e", [3, 1], "2026-01-03 10:00")
    )
    folder = run(log, PLAIN, items=tables, log_end=END, min_sessions=2)
    assert [window.name for window in folder.windows] == ["2026-01-01", "2026-01-03"]
    assert folder.items["first_window"].to_pylist() == ["2026-01-01", "2026-01-03"]


def test_of_equal_times_the_last_row_holds_and_one_like_it_changes_nothing(run):
    first = row(1, "2026-01-01", "a"), row(1, "2026-01-01", "b")
    again = row(1, "2026-01-02", "b"), row(1, "2026-01-03", None)
    folder = run(LOG, PLAIN, items=brands(*first, *again), log_end=END)
    names, brand = (folder.items[name].to_pylist() for name in ("first_window", "brand"))
    assert names == ["2026-01-01", "2026-01-03"]
    # The row that another one replaced never held, so its value is not in the vocabulary.
    assert folder.vocabulary("brand")["value"].to_pylist() == ["b"]
    assert brand == [2, 1]


def test_without_times_rows_hold_from_the_first_window_on(run):
    tables = [
        table.select(["item_id", "row", "brand"])
        for table in brands(row(1, None, "a"), row(1, None, "b"), row(7, None, "c"))
    ]
    folder = run(LOG, item_dataset(**BRANDS, vectors=None, time=None), items=tables, log_end=END)
    assert folder.items["first_window"].to_pylist() == ["2026-01-01"] * 2
    assert {value for *_, value in events_of(folder, "brand")} == {"b", None}


def test_numbers_are_encoded_as_those_of_events(run):
    rows = [
        row(1, "2025-01-01", weight=2.0),
        row(2, "2025-01-01", weight=6.0),
        row(5, "2025-01-01"),
    ]
    dataset = item_dataset(features={"weight": {"kind": "number", "column": "w"}}, vectors=None,
                           available_until=None)  # fmt: skip
    folder = run(LOG, dataset, items=[table_of(rows)], log_end=END)
    about = folder.statistics.features["weight"]
    assert (about.mean, about.std, about.of_item) == (4.0, pytest.approx(8**0.5), True)
    found = dict(zip(folder.items["item_id"].to_pylist(), folder.items["weight"], strict=True))
    scaled = {n: pytest.approx(value / 8**0.5, rel=1e-6) for n, value in ((2, -2), (3, 2), (4, 0))}
    assert {n: value.as_py() for n, value in found.items()} == scaled
    table = folder.read(folder.windows[0], "train", ["item_id", "weight"])
    assert table["weight"].to_pylist() == [[scaled[2], scaled[3]]]


def test_past_events_have_the_features_of_their_own_time(run):
    log = events(
        session("a", [1, 2], "2026-01-01 09:00", user_id="u")
        + session("b", [3, 1], "2026-01-02 09:00", user_id="u")
    )
    section = {**BRANDS, "vectors": None}
    dataset = item_dataset(past_max_length=2, **section)
    tables = brands(row(1, "2025-01-01", "old"), row(1, "2026-01-02", "new"))
    folder = run(log, dataset, items=tables, log_end=END)
    table = folder.read(folder.windows[1], "all", ["bef_brand", "brand"])
    names = values_of(folder, "brand")
    decoded = [[names[n] for n in column[0].as_py()] for column in table.columns]
    assert decoded == [["old", None], [None, "new"]]


def test_numbers_of_events_may_be_relative_to_a_category_of_items(run):
    dataset = item_dataset(
        log_features={"cheap": {"kind": "relative_number", "column": "p", "relative_to": "brand"}},
        **BRANDS,
        vectors=None,
    )
    log = LOG.append_column("cheap", pa.array([1.0, 3.0, 5.0, 1.0, 2.0, 2.0]))
    tables = brands(row(1, "2025-01-01", "a"), row(2, "2025-01-01", "a"))
    folder = run(log, dataset, items=tables, log_end=END)
    assert folder.statistics.features["cheap"].values == ["a"]
    assert folder.statistics.features["cheap"].means == [2.0]


def test_vectors_have_unit_length_and_are_zeros_where_there_is_none(run):
    rows = [
        row(1, "2025-01-01", words="red shoe", image=[3.0, 4.0]),
        row(2, "2025-01-01", words="red shoes and a hat", image=[0.0, 0.0]),
        row(3, "2025-01-01", words=None, image=None),
        row(4, "2026-01-02", words="shoe red, red", image=[0.0, -2.0]),
        row(5, "2026-01-02", words="quite another thing", image=None),
    ]
    folder = run(LOG, item_dataset(), items=[table_of(rows)], log_end=END)
    image, words = (np.array(folder.items[name].to_pylist()) for name in ("image", "words"))
    assert folder.items.schema.field("image").type == pa.list_(pa.float32(), 2)
    np.testing.assert_allclose(image, [[0.6, 0.8], [0, 0], [0, 0], [0, -1], [0, 0]], rtol=1e-6)
    lengths = np.linalg.norm(words, axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 0, 1, 0], atol=1e-6)  # words of the first window
    assert words[0] @ words[3] > 0.9 > words[0] @ words[1] > 0.2
    assert folder.statistics.items == ItemStatistics(
        features=["brand", "size", "weight"], vectors={"words": 4, "image": 2}, availability=True
    )


def test_texts_without_a_word_have_zeros(run):
    folder = run(LOG, item_dataset(), items=[table_of([row(1, "2025-01-01", words="a")])],
                 log_end=END)  # fmt: skip
    assert folder.items["words"].to_pylist() == [[0, 0, 0, 0]]


def test_an_empty_table_is_no_error(run):
    folder = run(LOG, item_dataset(), items=[table_of([])], log_end=END)
    assert len(folder.items) == len(folder.items_at(folder.windows[0]).rows) == 0
    assert {value for *_, value in events_of(folder, "brand")} == {None}


def test_items_that_the_table_lacks_are_said(run, caplog):
    with caplog.at_level(logging.WARNING):
        run(LOG, PLAIN, items=brands(row(1, "2025-01-01"), row(3, "2025-01-01")), log_end=END)
    message = (
        "33 % of the events (2) are of items that the table of items lacks, such as 2; compare"
    )
    assert message in caplog.text


def test_another_spelling_of_an_item_is_named(run, caplog):
    text = {"column": "item_id", "type": "string"}
    items = {**ITEMS, **BRANDS, "item_id": text, "vectors": {}}
    del items["available_until"]
    place = LOG.column_names.index("item_id")
    log = LOG.set_column(place, "item_id", LOG["item_id"].cast(pa.string()))
    [table] = brands(*(row(item, "2025-01-01") for item in (1, 2, 3)))
    table = table.set_column(0, "item_id", pa.array(["zz", "002", "3.0"]))
    with caplog.at_level(logging.WARNING):
        run(log, dataset_config(columns={"item_id": text}, items=items), items=[table], log_end=END)
    assert "such as '2', which is '002' there; compare" in caplog.text


def test_a_table_that_is_later_than_the_clicks_is_said(run, caplog):
    """As where its times are those of the export."""
    rows = [row(1, "2026-01-02"), row(2, "2026-01-01 23:00"), row(3, "2027-01-01")]
    with caplog.at_level(logging.WARNING):
        run(LOG, PLAIN, items=brands(*rows), log_end=END)
    message = "67 % of the events (4) are of items whose first row in the table of items holds only"
    assert message in caplog.text
    assert "such as 1; their features are null until then" in caplog.text
    assert "lacks" not in caplog.text


def test_a_data_set_without_a_table(run):
    folder = run(LOG, item_dataset().__class__(**{**vars(PLAIN), "items": None}), log_end=END)
    assert folder.items is None
    assert not (folder.folder / "items.parquet").exists()
    assert "items" not in (folder.folder / "statistics.json").read_text()
    assert folder.items_at(folder.windows[0]) is None


def test_data_raw_without_the_table_is_an_error(run):
    with pytest.raises(DataError, match=r"raw: has no table of items; run `dvc repro -f download`"):
        run(LOG, PLAIN, log_end=END)


def test_a_table_of_another_data_set_is_an_error(run):
    tables = [table.drop_columns(["brand"]) for table in brands(row(1, "2025-01-01"))]
    with pytest.raises(DataError, match=r"items-00000\.parquet: columns brand of the data set"):
        run(LOG, PLAIN, items=tables, log_end=END)


def test_rows_at_or_after_a_windows_end_change_nothing_of_it(run):
    """The leak test: files of windows, and what they know of vocabularies and items."""
    log, tables = random_log(7, 4), random_items(7, 4)
    end = datetime(2026, 1, 3, tzinfo=UTC)
    changed = []
    for table in tables:
        rows = [r for r in table.to_pylist() if r["event_time"] < end]
        changed.append(table_of(rows))
    later = [{**r, "event_time": end, "brand": "leak"} for r in rows_of(tables)]
    changed.append(table_of(later))
    for window in ({}, {"grace": 600}, {"overrun": "keep"}):
        options = {"log_end": "2026-01-05", **window}
        before = run(log, item_dataset(), items=tables, **options)
        after = run(log, item_dataset(), items=changed, **options)
        contents = [bytes_in(folder.folder) for folder in (before, after)]
        files = [name for name in contents[0] if "=2026-01-01" in name or "=2026-01-02" in name]
        assert len(files) == 6
        for name in files:
            assert contents[0][name] == contents[1][name]
        for each in before.windows[:2]:
            assert before.items_at(each).rows.equals(after.items_at(each).rows)
            for column in ("item_id", "brand"):
                n = before.n_known(column, each)
                assert n == after.n_known(column, each)
                first = [f.vocabulary(column)["value"][:n] for f in (before, after)]
                assert first[0].equals(first[1])
        assert "leak" in after.vocabulary("brand")["value"].to_pylist()


def test_the_manifest_keeps_the_table(run, tmp_path):
    run(LOG, PLAIN, items=brands(row(1, "2025-01-01")), log_end=END)
    manifest = RawManifest.read(tmp_path / "0" / "raw")
    assert [part.events for part in manifest.items.parts] == [1]
    assert len(pq.read_table(tmp_path / "0" / "raw" / "items-00000.parquet")) == 1
