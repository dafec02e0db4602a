"""Live sessions: encoded bit for bit as the workflow does, in order, without repeats, cut."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.columns import EVENT_TIME, ITEM_ID, TIMESTAMP
from dayahead.features import engine
from dayahead.features import vocabulary as vocabularies
from dayahead.features.chain import ON_ARRAYS
from dayahead.features.operators import Standardise
from dayahead.features.session_encoder import SessionEncoder
from dayahead.features.workflow import encode, encoded_columns
from dayahead.windows.metadata import NumberStatistics
from support.builders import events, session
from support.encoding import ITEMS, statistics, vocabulary

EXAMPLES = 15
LARGEST = float(np.finfo(np.float32).max)
VALUES = {"int": [5, 6, 2**53 + 1, -(2**63), 2**63 - 1], "string": ["", "5", "a", "b", "\u00c4"]}
TYPES = {"int": pa.int64(), "string": pa.string()}
SPECIAL = [None, np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.0, 2.0, LARGEST, -LARGEST, 1e39, 1e300]
NUMBERS = st.sampled_from(SPECIAL) | st.floats(-1e3, 1e3) | st.floats(width=32)
MEANS = st.sampled_from([0.0, 1e-300, 1.0]) | st.floats(-100, 100)


@st.composite
def scales(draw):
    kind = draw(st.sampled_from(["standard", "gauss_rank", "none"]))
    if kind == "standard":
        std = st.sampled_from([0.5, 0.0]) | st.floats(1e-3, 100)
        return {"mean": draw(st.floats(-100, 100)), "std": draw(std)}
    if kind == "gauss_rank":
        knots = sorted(draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]) | st.floats(-100, 100))))
        return {"knots": knots, "n": len(knots) * draw(st.integers(1, 3))}
    return {}


@st.composite
def number_statistics(draw, kind, category, type_):
    fitted = draw(scales())
    if kind == "relative_number":
        values = draw(st.lists(st.sampled_from(VALUES[type_]), unique=True))
        means = draw(st.lists(MEANS, min_size=len(values), max_size=len(values)))
        fitted |= {"relative_to": category, "values": values, "means": means}
        fitted["overall_mean"] = draw(MEANS)
    return fitted


@st.composite
def features(draw):
    """Some features of every kind, fitted to all windows or to each by itself."""
    type_ = draw(st.sampled_from(list(VALUES)))
    fitted = {"brand": {"kind": "categorical", "type": type_}}
    for kind in ("number", "log_number", "relative_number", "item_age"):
        numbers = number_statistics(kind, "brand", type_)
        if draw(st.sampled_from([False, False, True])):
            windows = {
                day: NumberStatistics(**draw(numbers)) for day in ("2026-01-01", "2026-01-02")
            }
            fitted[kind] = {"kind": kind, "windows": windows}
        else:
            fitted[kind] = {"kind": kind, **draw(numbers)}
    fitted |= {kind: {"kind": kind} for kind in ("hour", "weekday")}
    return {
        name: each for name, each in fitted.items() if draw(st.sampled_from([True, True, False]))
    }, type_


@st.composite
def ids(draw, type_, n):
    """Ids known and unknown, of the data set's type or of the other."""
    values = st.sampled_from([None, *VALUES[type_]])
    found = pa.array(draw(st.lists(values, min_size=n, max_size=n)), TYPES[type_])
    return found.cast(pa.string()) if draw(st.booleans()) else found


@st.composite
def sessions(draw, item_type, brand_type):
    n = draw(st.integers(1, 20))
    every = {"min_size": n, "max_size": n}
    times = st.lists(st.integers(-(2**40), 2**52) | st.integers(0, 3), **every)
    columns = {"brand": draw(ids(brand_type, n))}
    for name in ("number", "log_number", "relative_number"):
        type_ = draw(st.sampled_from([pa.float64(), pa.float32()]))
        columns[name] = pa.array(draw(st.lists(NUMBERS, **every)), pa.float64()).cast(type_)
    present = [name for name in columns if draw(st.sampled_from([True, True, False]))]
    return pa.table(
        {
            ITEM_ID: draw(ids(item_type, n)),
            EVENT_TIME: pa.array(draw(times)).cast(TIMESTAMP),
            **{name: columns[name] for name in present},
        }
    )


def kept_rows(log, rules):
    """Rows of a live session in order, without repeats, the last of them: row by row."""
    items, times = log[ITEM_ID].to_pylist(), log[EVENT_TIME].to_pylist()
    kept = []
    for row in sorted(range(len(log)), key=lambda row: times[row]):
        before = [items[each] for each in kept]
        if rules.repeats == "drop_consecutive":
            before = before[-1:]
        if rules.repeats == "keep" or items[row] not in before:
            kept.append(row)
    return kept[-(rules.max_length - 1) :]


def assert_as_by_workflow(log, rules, known):
    with np.errstate(over="ignore", invalid="ignore"), pytest.MonkeyPatch.context() as patch:
        found = SessionEncoder(rules, known).encode_session(log)
        patch.setattr(vocabularies, "FEW", 0)
        kept = log.take(kept_rows(log, rules.sessions))
        expected = encode(kept, rules, known)
    assert found.pop(EVENT_TIME).tolist() == kept[EVENT_TIME].cast(pa.int64()).to_pylist()
    assert set(found) == set(encoded_columns(rules))
    for name, values in found.items():
        column = expected[name].to_numpy()
        assert values.dtype == column.dtype
        assert values.tobytes() == column.tobytes(), name
        assert not np.isnan(values).any()


@pytest.mark.long
@pytest.mark.parametrize("item_type", VALUES)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_live_session_is_encoded_as_the_workflow_does_bit_for_bit(item_type, data):
    chosen, brand_type = data.draw(features())
    rules = statistics(
        chosen,
        timezone=data.draw(st.sampled_from(["UTC", "Europe/Oslo", "America/Sao_Paulo"])),
        item_type=item_type,
        repeats=data.draw(st.sampled_from(["keep", "drop_consecutive", "drop_all"])),
        max_length=data.draw(st.integers(2, 21)),
    )
    known = {
        ITEM_ID: vocabulary(ITEM_ID, VALUES[item_type][1:], TYPES[item_type]),
        "brand": vocabulary("brand", VALUES[brand_type][:3], TYPES[brand_type]),
    }
    log = data.draw(sessions(item_type, brand_type))
    assert_as_by_workflow(log, rules, known)


def test_no_operator_of_nvtabular_computes_a_live_session():
    """What the test above compares is then computed twice, by NVTabular and by us.

    Of Normalize only the fit is NVTabular's.
    """
    exported = [getattr(engine, name) for name in engine.__all__]
    classes = [each for each in exported if isinstance(each, type)]
    bases = (engine.Operator, engine.StatOperator)
    operators = {each for each in classes if issubclass(each, bases)} - {*bases, engine.Normalize}
    assert "transform" in vars(Standardise)
    assert operators == {*ON_ARRAYS}


def test_a_number_that_is_cut_off_is_so_in_both():
    log = events(session("a", [50, 60], "2026-01-03", number=LARGEST))
    rules = statistics({"number": {"kind": "number", "mean": 0.0, "std": 0.5}})
    assert_as_by_workflow(log, rules, {ITEM_ID: ITEMS})


def test_a_live_session_takes_no_workflow(monkeypatch):
    monkeypatch.setattr("dayahead.features.workflow.build_workflow", None)
    rows = session("a", [60, 9], "2026-01-03", price=4.0)
    rules = statistics({"price": {"kind": "number", "mean": 2.0, "std": 2.0}})
    arrays = SessionEncoder(rules, {ITEM_ID: ITEMS}).encode_session(events(rows))
    minute = 60_000_000
    assert {name: values.tolist() for name, values in arrays.items()} == {
        "item_id": [3, 1],
        "event_time": [arrays["event_time"][1] - minute, arrays["event_time"][0] + minute],
        "price": [1, 1],
    }
