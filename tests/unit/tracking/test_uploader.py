from pathlib import Path

import pytest
from mlflow import MlflowException

from dayahead.tracking.journal import Journal
from dayahead.tracking.store import Store, open_store
from dayahead.tracking.uploader import Progress, Sender
from support.tracked_stages import points_of, runs_of


def journal_in(folder: Path, name: str, stage: str = "train", **start) -> Journal:
    """A journal that knows every kind of entry."""
    journal = Journal(folder / name / f"{stage}.jsonl")
    facts = {
        "at": 1000,
        "id": f"{name}-{stage}",
        "execution": name,
        "experiment": "dayahead",
        "stage": stage,
        "name": name,
        "tags": {"dayahead.fingerprint": f"print-{stage}"},
        "params": {f"section.key{n}": str(n) for n in range(150)},
        "stage_params": {"section.key0": "0"},
        "upstream": {},
    }
    journal.append("start", **facts | start)
    for step in range(3):
        journal.append("metrics", step=step, timestamp=step, metrics={"ndcg_at_20": step / 8})
    journal.append("params", params={"extra": "1"})
    (folder / "ranks").mkdir(exist_ok=True)
    (folder / "ranks/a.parquet").write_text("ranks")
    journal.append("artifacts", kept=journal.keep(folder / "ranks"), folder="ranks")
    journal.append("artifact", kept=journal.keep(folder / "ranks/a.parquet"), folder=None)
    journal.append("model", kept=journal.keep(folder / "ranks"))
    journal.append("input", name="raw", source="data/raw", digest="d" * 64)
    journal.append("end", status="FINISHED", at=2000)
    return journal


def seen(store, journal):
    """All that a store holds of a journal's two runs, but for random ids."""
    progress = Progress.of(journal)
    told = []
    for run in map(store.client.get_run, (progress.run, progress.parent)):
        files = store.client.list_artifacts(run.info.run_id)
        told.append(
            (
                run.info.status,
                (run.info.start_time, run.info.end_time),
                points_of(store, run),
                run.data.params,
                sorted(set(run.data.tags)),
                sorted(file.path for file in files),
                [entry.dataset.name for entry in run.inputs.dataset_inputs],
                len(run.outputs.model_outputs if run.outputs else []),
            )
        )
    return told


def test_a_journal_becomes_a_parent_and_a_nested_run(store, tmp_path):
    journal = journal_in(tmp_path, "one")
    assert Sender(store).send(journal) == 10
    nested, parent = seen(store, journal)
    assert nested[0] == parent[0] == "FINISHED"
    assert nested[1] == parent[1] == (1000, 2000)
    assert nested[2] == parent[2] == [(0, 0), (1, 0.125), (2, 0.25)]
    assert len(parent[3]) == 150
    assert nested[3] == {"section.key0": "0", "extra": "1"}
    assert nested[5] == ["a.parquet", "ranks"]
    assert nested[6:] == (["raw"], 1)


def test_what_was_sent_is_not_sent_again_and_its_copies_go(store, tmp_path):
    journal = journal_in(tmp_path, "one")
    Sender(store).send(journal)
    before = seen(store, journal)
    assert Sender(store).send(journal) == 0
    assert seen(store, journal) == before
    assert not any(journal.path.with_suffix(".files").iterdir())
    assert (tmp_path / "ranks/a.parquet").exists()


class Deadly:
    """An MLflow client whose sender dies right after the n-th call has reached the store."""

    def __init__(self, client, n_calls):
        self._client, self._left = client, n_calls

    def __getattr__(self, name):
        def call(*args, **kwargs):
            answer = getattr(self._client, name)(*args, **kwargs)
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
            return answer

        return call


def deaths(store, folder, calls):
    """Let a sender die after each of `calls`; yield what the store holds when another went on."""
    for n_calls in calls:
        journal = journal_in(folder, f"died-{n_calls}")
        deadly = Store(store.uri, store.root)
        deadly.__dict__["client"] = Deadly(store.client, n_calls)
        with pytest.raises(KeyboardInterrupt):
            Sender(deadly).send(journal)
        Sender(store).send(journal)
        yield seen(store, journal)


@pytest.mark.parametrize(
    "calls", [(2, 4, 9, 14, 19), pytest.param(range(1, 24), marks=pytest.mark.slow)]
)
def test_a_sender_may_die_after_any_call(store, tmp_path, calls):
    whole = journal_in(tmp_path, "whole")
    Sender(store).send(whole)
    expected = seen(store, whole)
    assert all(found == expected for found in deaths(store, tmp_path, calls))
    assert len(runs_of(store)["train"]) == len(runs_of(store)["pipeline"]) == 1 + len(calls)


def test_what_the_store_refuses_holds_up_nothing(store, tmp_path, caplog):
    journal = journal_in(tmp_path, "one")
    journal.append("metrics", step=0, timestamp=0, metrics={"recall@20": 1.0})
    journal.append("artifact", kept="lost/file", folder=None)
    journal.append("params", params={"last": "1"})
    Sender(store).send(journal)
    assert store.client.get_run(Progress.of(journal).run).data.params["last"] == "1"
    assert "recall@20" in caplog.text
    assert "lost/file" in caplog.text


def test_a_changed_setting_holds_up_nothing(store, tmp_path, caplog):
    Sender(store).send(journal_in(tmp_path, "one", "download"))
    later = journal_in(tmp_path, "one", params={"section.key0": "changed"})
    Sender(store).send(later)
    assert store.client.get_run(Progress.of(later).run).info.status == "FINISHED"
    assert "section.key0" in caplog.text


def test_a_skipped_stage_is_found_by_its_fingerprint(store, tmp_path):
    sender = Sender(store)
    sender.send(journal_in(tmp_path, "older"))
    older = runs_of(store)["train"][0].info.run_id
    later = journal_in(
        tmp_path, "later", "aggregate", at=3000, upstream={"train": "print-train", "x": "unknown"}
    )
    sender.send(later)
    progress = Progress.of(later)
    parent, nested = map(store.client.get_run, (progress.parent, progress.run))
    assert parent.data.tags["lineage.train"] == nested.data.tags["lineage.train"] == older
    assert parent.data.tags["lineage.aggregate"] == progress.run
    assert "lineage.x" not in parent.data.tags


def test_parents_get_the_curves_of_a_skipped_stage(store, tmp_path):
    sender = Sender(store)
    sender.send(journal_in(tmp_path, "older"))
    later = Journal(tmp_path / "later/aggregate.jsonl")
    start = journal_in(tmp_path, "unsent").start()
    changes = {"id": "z", "execution": "z", "upstream": {"train": "print-train"}}
    later.append(**start | changes | {"stage": "aggregate"})
    sender.send(later)
    parent = store.client.get_run(Progress.of(later).parent)
    assert points_of(store, parent) == [(0, 0), (1, 0.125), (2, 0.25)]


def test_a_stage_that_ran_here_is_preferred_to_an_older_one(store, tmp_path):
    sender = Sender(store)
    here = journal_in(tmp_path, "here", at=500)
    sender.send(here)
    sender.send(journal_in(tmp_path, "newer", at=900))
    last = journal_in(tmp_path, "here", "aggregate", upstream={"train": "print-train"})
    sender.send(last)
    parent = store.client.get_run(Progress.of(last).parent)
    assert parent.data.tags["lineage.train"] == Progress.of(here).run
    assert len(runs_of(store)["pipeline"]) == 2


def test_a_failing_store_is_told(project, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    from_nowhere = Sender(open_store(project))
    with pytest.raises(MlflowException):
        from_nowhere.send(journal_in(tmp_path, "one"))
