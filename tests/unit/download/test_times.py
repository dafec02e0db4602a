"""Times in every way of writing that is clear, and what is said where it is not."""

import re
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.errors import SourceError
from dayahead.dataset.time import TimeConfig
from dayahead.download.batches import RawBatch
from dayahead.download.events import to_events
from dayahead.download.time_advice import formats_of
from dayahead.download.times import InvalidTimesError, to_times
from support.sources import a_dataset

MOMENT = datetime(2023, 7, 5, 16, 3, 9, 250_000, tzinfo=UTC)
MOMENTS = st.integers(631_152_000_000_000, 7_258_000_000_000_000).map(
    lambda number: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)
)


def read(texts, kind=None, **time):
    """Times as read, UTC; those on a wall clock without a zone."""
    found = to_times(pa.array(texts, kind), TimeConfig(column="time", **time))
    walls = found.walls.to_pylist() if found.walls is not None else [None] * len(texts)
    return [
        a if a is not None else b for a, b in zip(found.instants.to_pylist(), walls, strict=True)
    ]


WRITTEN = {
    "2023-07-05 16:03:09.250000000": 250_000,
    "2023-07-05 16:03:09.25 +0000 UTC": 250_000,
    "2023-07-05 21:33:09.25 +0530 IST": 250_000,
    "2023-07-05 16:03:09.25+00": 250_000,
    "2023-07-05 16:03:09,250": 250_000,
    "2023-07-05t16:03:09.25z": 250_000,
    "2023-07-05T12:33:09.25-0330": 250_000,
    "2023-07-05 18:03:09 +02:00": 0,
    "2023-07-05 16:03:09UTC": 0,
    "2023-07-05T18:03:09.25+02:00[Europe/Berlin]": 250_000,
    "2023/07/05 16:03:09": 0,
    "2023.7.5 16:03:09": 0,
    "20230705T160309Z": 0,
    "20230705160309": 0,
    "20230705160309250": 250_000,
    "Wed, 05 Jul 2023 16:03:09 GMT": 0,
    "5 Jul 2023 12:03:09 -0400 (EDT)": 0,
    "[05/Jul/2023:16:03:09 +0000]": 0,
    "05-JUL-2023 16:03:09": 0,
    "Jul 5, 2023 4:03:09 PM": 0,
    "Wednesday, July 5th, 2023 at 4:03:09 p.m.": 0,
    "Wed Jul  5 16:03:09 2023": 0,
    "Wed Jul 5 16:03:09 UTC 2023": 0,
    "Wed Jul 05 2023 18:03:09 GMT+0200 (Central European Summer Time)": 0,
    ' "2023-07-05 16:03:09" ': 0,
    "2023-07-05 15:63:09": None,
    "2023-07-05 16:02:69": None,
    "2023-02-29": None,
    "2023-07-05 13:00 PM": None,
    "2023-07-05 16:03:09 CET": None,
    "5 Julember 2023": None,
    "2023-07-05 16:03:09+99:00": None,
    "05.07.2023": None,
    "07/05/23 16:03": None,
    "05-JUL-23": None,
    "1688572989": None,
    "yesterday": None,
}


@pytest.mark.parametrize(("text", "fraction"), WRITTEN.items(), ids=list(WRITTEN))
def test_ways_to_write_a_time(text, fraction):
    if fraction is None:
        with pytest.raises(InvalidTimesError):
            read([text])
    else:
        assert read([text]) == [MOMENT.replace(microsecond=fraction)]


def test_all_ways_may_be_in_one_file():
    fine = [text for text, fraction in WRITTEN.items() if fraction is not None]
    fractions = [WRITTEN[text] for text in fine]
    assert read([*fine, None]) == [*(MOMENT.replace(microsecond=n) for n in fractions), None]
    with pytest.raises(InvalidTimesError) as caught:
        read([None, *WRITTEN])
    assert caught.value.mask.tolist() == [False, *(n is None for n in WRITTEN.values())]


def test_the_ends_of_days_and_what_lies_far_away():
    assert read([b"2023-07-05 24:00", b"2016-12-31 23:59:60", b"2023-07-05 12:00 AM"]) == [
        datetime(2023, 7, 6, tzinfo=UTC), datetime(2017, 1, 1, tzinfo=UTC),
        datetime(2023, 7, 5, tzinfo=UTC),
    ]  # fmt: skip
    far = [
        "0001-01-01T00:00:00Z",
        "9999-12-31",
        "0000-00-00 00:00:00",
        "+292278994-08-17T07:12:55Z",
    ]
    for text in far:
        assert read([text, None])[0].year in {1900, 2250}


WRITERS = [
    lambda moment: format_datetime(moment),
    lambda moment: format_datetime(moment, usegmt=True),
    lambda moment: moment.ctime(),
    lambda moment: moment.strftime("[%d/%b/%Y:%H:%M:%S %z]"),
    lambda moment: moment.strftime("%b %d, %Y %I:%M:%S %p"),
    lambda moment: moment.strftime("%Y%m%d%H%M%S"),
    lambda moment: moment.strftime("%Y/%m/%d %H:%M:%S"),
    lambda moment: moment.isoformat(" ").replace(".", ","),
    lambda moment: moment.replace(tzinfo=None).isoformat(),
    lambda moment: moment.astimezone(timezone(timedelta(hours=-3.5))).isoformat(),
]


@given(st.lists(st.tuples(MOMENTS, st.sampled_from(WRITERS)), min_size=1))
@settings(max_examples=50, deadline=None)
def test_what_other_libraries_write_is_read(written):
    texts = [write(moment) for moment, write in written]
    for (moment, _), found in zip(written, read(texts), strict=True):
        assert found in (moment, moment.replace(microsecond=0))


FORMATS = [
    "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%d-%b-%y %H.%M.%S.%f", "%Y%m%dT%H%M%S%z",
    "%A, %d. %B %Y %H:%M:%S", "%H:%M:%S %d|%m|%Y", "%F %T.%f", "%y%m%d %%%R",
]  # fmt: skip


@given(st.lists(MOMENTS, min_size=1), st.sampled_from(FORMATS))
@settings(max_examples=50, deadline=None)
def test_formats_are_read_as_strptime_reads_them(moments, form):
    form_of_python = form.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S").replace("%R", "%H:%M")
    texts = [moment.strftime(form_of_python) for moment in moments]
    wanted = [datetime.strptime(text, form_of_python).replace(tzinfo=UTC) for text in texts]
    assert read(texts, format=form) == wanted


def test_the_first_format_that_fits_is_taken():
    formats = ("%d/%m/%Y", "%m/%d/%Y", "%Y-%m-%d")
    days = [found.date().isoformat() for found in read(["3/4/2023", "3/14/2023", "2023-05-06"],
                                                       format=formats)]  # fmt: skip
    assert days == ["2023-04-03", "2023-03-14", "2023-05-06"]
    with pytest.raises(InvalidTimesError):  # a format replaces what is read without one
        read(["2023-05-06 12:00:00"], format=formats)


NUMBERS = [
    ("1688572989.25", "s", MOMENT),
    ("1688572989,25", "s", MOMENT),
    ("1.68857298925e9", "s", MOMENT),
    ("1.688572989e+09", "s", MOMENT.replace(microsecond=0)),
    ("'1688572989'", "s", MOMENT.replace(microsecond=0)),
    ("1688572989250", "ms", MOMENT),
    ("1688572989250999999", "ns", MOMENT.replace(microsecond=250_999)),
    ("1.688572989250123e+18", "ns", MOMENT.replace(microsecond=250_123)),
    ("45112.66885706019", "excel", MOMENT),
    ("45112", "excel", datetime(2023, 7, 5, tzinfo=UTC)),
    ("1.688573E+12", "ms", None),
    ("1.69e9", "s", None),
    ("2023-07-05", "s", None),
    ("1_688_572_989", "s", None),
    ("nan", "s", None),
]


@pytest.mark.parametrize(("text", "unit", "moment"), NUMBERS)
def test_numbers_as_text(text, unit, moment):
    if moment is None:
        with pytest.raises(InvalidTimesError):
            read([text], unit=unit)
    else:
        assert read([text, None], unit=unit) == [moment, None]


def test_a_float32_has_lost_the_digits_of_a_time():
    with pytest.raises(InvalidTimesError):
        read([1.69e9], pa.float32(), unit="s")
    assert read([45112.5], pa.float32(), unit="excel") == [datetime(2023, 7, 5, 12, tzinfo=UTC)]


@given(st.lists(MOMENTS, min_size=1))
@settings(max_examples=25, deadline=None)
def test_unix_time_is_exact_however_it_is_written(moments):
    start, ms = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
    micros = [(moment - start) // timedelta(microseconds=1) for moment in moments]
    assert read([f"{n // 10**6}.{n % 10**6:06d}" for n in micros], unit="s") == moments
    assert read([f"{n}e-6" for n in micros], unit="s") == moments
    assert read([f"{n}000" for n in micros], unit="ns") == moments
    assert read([str(n) for n in micros], unit="us") == moments
    whole = [(moment - start) // ms for moment in moments]
    in_ms = [start + n * ms for n in whole]
    assert read(whole, unit="ms") == in_ms
    assert read([n / 1000 for n in whole], pa.float64(), unit="s") == in_ms


ADVICE = [
    ("03.04.2023 9:05:07", "text", '"%d.%m.%Y %H:%M:%S" or time.format: "%m.%d.%Y %H:%M:%S"'),
    ("3/4/2023 9:05 PM", "text", '"%d/%m/%Y %I:%M %p" or time.format: "%m/%d/%Y %I:%M %p"'),
    ("03-04-23", "text", '"%d-%m-%y" or time.format: "%m-%d-%y" or time.format: "%y-%m-%d"'),
    ("25.12.2023", "text", 'time.format: "%d.%m.%Y" in the data'),
    ("04-MAR-23 09.05.07,123", "text", 'time.format: "%d-%b-%y %H.%M.%S,%f" in the data'),
    ("1688572989", "text", "As Unix time in s it is 2023-07-05T16:03:09: set time.unit: s in"),
    (45112.5, "text", "As days of Excel it is 2023-07-05T12:00:00: set time.unit: excel"),
    ("2023-07-05", "s", "As a date in text it is 2023-07-05: set time.unit: text"),
    ("1.69e9", "s", "its last digits are lost"),
    ("soon", "text", "found 'soon'"),
]


@pytest.mark.parametrize(("value", "unit", "advice"), ADVICE)
def test_an_unreadable_time_says_what_to_set(value, unit, advice):
    rows = pa.table({"session": ["a"], "item": [1], "time": [value]})
    with pytest.raises(SourceError, match=re.escape(advice)) as caught:
        to_events(RawBatch(rows, "log.csv", "line", 2), a_dataset(time={"unit": unit}), 0)
    has_two = str(caught.value).count("time.format") > 1
    assert ("order of its day and month is not known" in str(caught.value)) == has_two


@given(MOMENTS, st.sampled_from([form for form in FORMATS if form[1] in "dm" and "|" not in form]))
@settings(max_examples=50, deadline=None)
def test_one_of_the_formats_that_are_named_is_the_right_one(moment, form):
    text = moment.strftime(form)
    found = [read([text], format=each) for each in formats_of(text)]
    assert read([text], format=form) in found
