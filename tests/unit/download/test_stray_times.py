"""Times that cannot be right, through the whole stage: what is dropped, set aside or refused."""

from datetime import UTC, date, datetime, timedelta

import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import SourceError
from dayahead.core.files import read_json
from dayahead.download import stage
from dayahead.download.stage import download
from support.raw_logs import csv, log_of, quality_of

BEGIN = datetime(2023, 5, 1, tzinfo=UTC)
MINUTES = [BEGIN + timedelta(minutes=20 * n) for n in range(3 * 72)]
ROWS = [f"a{n // 4},{n},{moment:%Y-%m-%d %H:%M:%S}" for n, moment in enumerate(MINUTES)]
UNIX = [int(moment.timestamp()) for moment in MINUTES]


def manifest_of(folder):
    return read_json(folder / "data/raw/manifest.json")


def events_of(folder):
    return pq.read_table(folder / "data/raw/events-00000.parquet")


def test_a_stray_neither_ends_nor_begins_the_log(tmp_path, caplog):
    rows = [*ROWS[:30], "x,1,2019-01-01 05:00:00", *ROWS[30:], "y,2,2025-12-31 23:00:00"]
    found = quality_of(tmp_path, csv(*rows))["stray"]
    manifest = manifest_of(tmp_path)
    assert manifest["log_end"] == "2023-05-03T23:40:00+00:00"
    assert [datetime.fromtimestamp(end / 1e6, UTC).date() for end in manifest["span"]] == [
        date(2023, 5, 1), date(2023, 5, 4),
    ]  # fmt: skip
    assert (found["found"], found["of"], manifest["events"]) == (2, len(rows), len(rows))
    assert found["examples"] == [
        "1 event on 2019-01-01 (0.csv, line 32)",
        f"1 event on 2025-12-31 (0.csv, line {len(rows) + 1})",
    ]
    (warning,) = [each.message for each in caplog.records if "set aside" in each.message]
    assert "from 2023-05-01 to 2023-05-03" in warning
    assert "1 event on 2019-01-01 (0.csv, line 32); 1 event on 2025-12-31" in warning


def test_without_strays_nothing_is_said(tmp_path, caplog):
    quality_of(tmp_path, csv(*ROWS))
    assert "span" not in manifest_of(tmp_path)
    assert "set aside" not in caplog.text


def test_empty_days_are_those_between_days_of_the_log(tmp_path):
    found = quality_of(tmp_path, csv(*ROWS[:72], *ROWS[144:], "y,2,2025-12-31 23:00:00"))
    assert (found["empty_days"]["found"], found["empty_days"]["of"]) == (1, 3)


@pytest.mark.parametrize(
    ("until", "end"),
    [("2023-05-02T00:00:00Z", date(2023, 5, 4)), ("2023-05-20", date(2023, 5, 20))],
)
def test_the_log_reaches_as_far_as_it_is_complete(tmp_path, until, end):
    until = until if "T" in until else f"{until}T00:00:00Z"
    quality_of(tmp_path, csv(*ROWS, "y,2,2025-12-31 23:00:00"), time={"complete_until": until})
    manifest = manifest_of(tmp_path)
    assert manifest["log_end"] == until.replace("Z", "+00:00")
    assert datetime.fromtimestamp(manifest["span"][1] / 1e6, UTC).date() == end


def test_events_later_than_tomorrow_are_strays(tmp_path, monkeypatch):
    text = csv(*ROWS)
    monkeypatch.setattr(stage, "today", lambda: date(2023, 5, 1))
    with pytest.raises(
        SourceError, match=r"stray: 33\.33% .*first 72 events on 2023-05-03 \(0\.csv"
    ):
        quality_of(tmp_path, text)
    quality_of(tmp_path, text, quality={"stray": None})
    assert manifest_of(tmp_path)["log_end"] == "2023-05-02T23:40:00+00:00"
    # The conversion was cached; tomorrow they are within.
    monkeypatch.setattr(stage, "today", lambda: date(2023, 5, 2))
    quality_of(tmp_path, text)
    assert manifest_of(tmp_path)["log_end"] == "2023-05-03T23:40:00+00:00"


@pytest.mark.parametrize(("now", "between"), [("2023-05-01", True), ("2001-01-01", False)])
def test_today_plays_no_part_where_it_cannot_be_right(tmp_path, monkeypatch, now, between):
    """With time.between the user has said what is plausible."""
    monkeypatch.setattr(stage, "today", lambda: date.fromisoformat(now))
    time = {"between": ["2023-05-01", "2023-05-03"]} if between else {}
    assert quality_of(tmp_path, csv(*ROWS), time=time)["stray"]["found"] == 0


BETWEEN = [
    (["2023-05-02", "2023-05-02"], 72),
    (["2023-05-02T00:00:00Z", "2023-05-02T12:00:00Z"], 36),
    (["2023-05-02T02:00:00+02:00", "2023-05-03T00:00:00"], 72),
    (["1990-01-01", "2023-05-01"], 72),
]


@pytest.mark.parametrize(("between", "n_kept"), BETWEEN)
def test_events_outside_between_are_dropped_and_counted(tmp_path, between, n_kept):
    dataset = log_of(tmp_path, csv(*ROWS), time={"between": between}, quality={"outside": None})
    download(dataset, "mine", tmp_path / "data/raw")
    times = events_of(tmp_path)["event_time"].to_pylist()
    low, high = (datetime.fromisoformat(end.replace("Z", "+00:00")) for end in between)
    low, high = (each if each.tzinfo else each.replace(tzinfo=UTC) for each in (low, high))
    high += timedelta(days="T" not in between[1])
    assert times == [moment for moment in MINUTES if low <= moment < high]
    assert manifest_of(tmp_path)["dropped"] == {"outside time.between": len(ROWS) - n_kept}


def test_many_times_outside_are_an_error_that_names_the_setting(tmp_path):
    rows = [*ROWS[:17], "a,1,1901-02-03", "a,1,9999-12-31"]
    with pytest.raises(SourceError, match=r"outside: 10\.53% of 19 rows .*line 19.*time\.between"):
        quality_of(tmp_path, csv(*rows))
    assert quality_of(tmp_path, csv(*ROWS[:30], *rows[17:]))["outside"]["found"] == 2


WRONG = [
    ("ms", UNIX, "as Unix time in ms, and 216 of them inside as Unix time in s", "s"),
    ("s", [n * 1000 for n in UNIX], "as Unix time in s, .* Unix time in ms", "ms"),
    ("us", [n * 1000 for n in UNIX], "as Unix time in us, .* Unix time in ms", "ms"),
    ("ms", [n * 10**9 for n in UNIX], "as Unix time in ms, .* Unix time in ns", "ns"),
    ("s", [f"{m:%Y%m%d%H%M%S}" for m in MINUTES], "inside as a date in text", "text"),
    ("ms", [f"{m:%Y%m%d}" for m in MINUTES], "inside as a date in text", "text"),
    ("s", [n / 86400 + 25569 for n in UNIX], "inside as days of Excel", "excel"),
    ("excel", UNIX, "outside .* as days of Excel", "s"),
]


@pytest.mark.parametrize(("unit", "values", "message", "right"), WRONG)
def test_another_unit_is_named_where_most_times_are_outside(tmp_path, unit, values, message, right):
    text = csv(*(f"a{n // 4},{n},{value}" for n, value in enumerate(values)))
    with pytest.raises(SourceError, match=message) as caught:
        quality_of(tmp_path, text, time={"unit": unit}, quality={"outside": None})
    assert f"0.csv, line 2: {values[0]} is then 2023-05-01)" in str(caught.value)
    assert f"Set time.unit: {right} in the" in str(caught.value)
    quality_of(tmp_path, text, time={"unit": right})
    assert events_of(tmp_path)["event_time"][0].as_py() == BEGIN


def test_a_few_times_of_another_unit_are_only_outside(tmp_path):
    values = [*UNIX, *(n * 1000 for n in UNIX[:9])]
    text = csv(*(f"a{n // 4},{n},{value}" for n, value in enumerate(values)))
    found = quality_of(tmp_path, text, time={"unit": "s"})["outside"]
    assert (found["found"], found["examples"][0]) == (9, "0.csv, line 218")


def test_the_example_of_another_unit_is_a_time_inside_in_it(tmp_path):
    values = [0, 5, *UNIX]
    text = csv(*(f"a{n // 4},{n},{value}" for n, value in enumerate(values)))
    with pytest.raises(SourceError, match=f"line 4: {UNIX[0]} is then 2023-05-01"):
        quality_of(tmp_path, text, time={"unit": "ms"}, quality={"outside": None})
