"""Recommendations of a model that knows items from a table."""

from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.commands.recommend import say_unmatched
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import Options
from dayahead.serve.similar import SimilarItems
from support.listed_items import Row, add_items
from support.tiny_settings import train_study
from support.window_folders import START, day, markov_days, raw_events, write_window_folder

NEW = 90
DAYS = markov_days(n_days=3, sessions_per_day=30, n_items=12)
GONE = 4
"""Withdrawn in the middle of the last day."""
NOON = START + timedelta(days=2, hours=12)
OLD = 5
"""Withdrawn on the first day."""
LAST = 7
"""Withdrawn as the second day ends, the last that the model is fitted on."""
ENDS = {GONE: NOON, OLD: START, LAST: START + timedelta(days=2)}
STARTS = {NEW: START + timedelta(days=1)}
MODELS = {
    "transitions": {"architecture": "transitions", "remind": "first"},
    "memory": {"architecture": "memory", "features": ["category"]},
    "gpt2": {"architecture": "gpt2", "features": ["category"]},
}
each_model = pytest.mark.parametrize("name", ["memory", "gpt2"])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Folder of a study whose model is fitted on two days and evaluated on the third."""

    def run(name):
        folder = tmp_path_factory.mktemp("study")
        windows = write_window_folder(folder / "windows", DAYS, features=True, listed={0: [NEW]})
        items = [*range(12), NEW]
        rows = [
            Row(item, (1, item / 9, 0), 0, item % 3 + 2, STARTS.get(item), ENDS.get(item))
            for item in items
        ]
        add_items(windows, rows)
        of_evaluation = {"split": "all", "candidates": "known", "predictions": 13}
        sections = {
            "model": MODELS[name],
            "evaluation": of_evaluation,
            "training": {"fit_last": False},
        }
        return train_study(windows, folder, sections)

    return run


@pytest.fixture(scope="module")
def models(study):
    return study("memory") / "models"


def items_of(found):
    return [item for item, _ in found]


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_ids_alone_are_answered_as_they_were_evaluated(study, name):
    """Sessions with an item that was withdrawn before are among them, and never get it."""
    out = study(name)
    recommender = Recommender.load(out / "models")
    assert recommender.features == ()
    path = out / "results" / "predictions" / f"{day(2)}.parquet"
    found = pq.read_table(path).to_pylist()
    assert any(OLD in DAYS[2][int(row["session_id"][2:])][:-1] for row in found)
    for row in found:
        number = int(row["session_id"][2:])
        events = raw_events(DAYS[2][number][:-1], 2, number).select(["item_id", "event_time"])
        top = recommender.recommend_after(events, 13)
        assert items_of(top) == row["items"]
        assert OLD not in row["items"]
        assert [score for _, score in top] == pytest.approx(row["scores"], abs=1e-5)


def test_a_list_holds_the_items_that_are_available_at_the_time_of_the_session(models):
    recommender = Recommender.load(models)
    morning = raw_events([1, 2], 2).select(["item_id", "event_time"])
    late = raw_events([1, 2], 3).select(["item_id", "event_time"])
    assert GONE in items_of(recommender.recommend_after(morning, 13))
    assert GONE not in items_of(recommender.recommend_after(late, 13))
    assert NEW in items_of(recommender.recommend_after(late, 13))


def test_a_session_before_the_last_window_s_end_gets_what_was_available_then(models):
    recommender = Recommender.load(models)
    sessions = [raw_events([1, 2], n).select(["item_id", "event_time"]) for n in (0, 1)]
    found = [items_of(recommender.recommend_after(events, 13)) for events in sessions]
    assert [NEW in items for items in found] == [False, True]


def test_candidates_are_available_where_the_last_window_ends(models):
    stored = Recommender.load(models).stored
    assert stored.candidates_at(stored.config.end).tolist() == stored.candidates.tolist()
    assert len(stored.candidates) == 11


def test_items_of_the_session_that_were_withdrawn_are_not_recommended_again(study):
    recommender = Recommender.load(study("transitions") / "models")
    events = raw_events([OLD, GONE, 1], 3).select(["item_id", "event_time"])
    found = items_of(recommender.recommend_after(events, 13))
    assert found[0] == 1
    assert not {OLD, GONE} & {*found}


def test_similar_items_are_available_after_the_last_window(study):
    finder = SimilarItems(Recommender.load(study("transitions") / "models"))
    found = {item for top in finder.find([*range(12)], Options(top_k=13)) for item, _ in top}
    assert GONE in found  # until noon
    assert OLD not in found


def test_an_event_may_have_what_the_table_knows(models):
    recommender = Recommender.load(models)
    events = raw_events([1, 2], 2)
    assert recommender.recommend_after(events, 5) == recommender.recommend_after(
        events.select(["item_id", "event_time"]), 5
    )


def test_a_list_is_of_the_items_with_these_attributes(models):
    recommender = Recommender.load(models)
    events = recommender.events_of([1, 2])
    found = items_of(recommender.recommend_after(events, 13, where={"category": ["0", "2"]}))
    assert found
    assert {item % 3 for item in found} == {0, 2}
    assert not recommender.recommend_after(events, 13, where={"category": ["7"]})
    with pytest.raises(
        ConfigError, match="brand: unknown; expected an attribute of the table of items: cat"
    ):
        recommender.recommend_after(events, 13, where={"brand": ["acme"]})


def test_a_file_of_known_sessions_may_get_no_items(models, tmp_path):
    """No item has these attributes: that is no reason to call the sessions unknown."""
    source, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"session_id": ["a"], "item_id": [[1, 2]]}), source)
    files = ["--sessions", str(source), "--output", str(output), "--models", str(models)]
    done = CliRunner().invoke(app, ["recommend", *files, "--where", "category=7"])
    assert done.exit_code == 0, done.exception
    assert "0 recommendations for 1 sessions, of which 0 have no item" in done.stdout
    assert done.stderr == "--where: no item has category=7\n"
    assert len(pq.read_table(output)) == 0


def test_values_that_no_item_has_are_named(models, capsys):
    say_unmatched(Recommender.load(models), Options(where={"category": ["0", "00", "seven"]}))
    expected = "--where: no item has category=00; did you mean 0?; no item has category=seven\n"
    assert capsys.readouterr().err == expected
    say_unmatched(Recommender.load(models), Options(where={"category": ["0"]}))
    assert not capsys.readouterr().err


def test_a_model_without_a_table_knows_no_attributes(load):
    recommender = load("memory")
    with pytest.raises(ConfigError, match="knows no attributes of items"):
        recommender.recommend_after(recommender.events_of([1]), 3, where={"brand": ["acme"]})


def test_a_reason_is_the_content(models):
    recommender = Recommender.load(models)
    [reasons] = recommender.explain(recommender.events_of([1, 2]), [NEW])
    assert "content.title.new" in reasons


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.drop(["title"]), "no column title"),
        (lambda rows: rows.drop(["item_id"]), "ascending indices"),
        (lambda rows: rows.take([1, 0]), "ascending indices"),
        (lambda rows: rows.append_column("other", rows["item_id"]), "other: unexpected column"),
    ],
)
def test_a_damaged_table_is_an_error(study, change, message):
    models = study("memory") / "models"
    rows = pq.read_table(models / "items.parquet")
    pq.write_table(change(rows), models / "items.parquet")
    with pytest.raises(ModelFileError, match=message):
        Recommender.load(models)


def test_a_model_whose_table_is_gone_is_an_error(study):
    models = study("memory") / "models"
    (models / "items.parquet").unlink()
    with pytest.raises(ModelFileError, match=r"items\.parquet"):
        Recommender.load(models)
