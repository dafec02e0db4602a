"""The registered model: versions and aliases, however late and in whatever order records arrive."""

from dataclasses import replace
from pathlib import Path

import pytest

from dayahead.core.project import cache_root
from dayahead.tracking.outbox import Outbox, outboxes
from dayahead.tracking.publication import record_publication
from dayahead.tracking.registry import PUBLISHED_TAG, WITHDRAWN_TAG
from dayahead.tracking.sinks import Progress
from dayahead.tracking.sync import sync_all
from support.tracked_stages import NOWHERE, plain_package, publication

CODE = Path(__file__).parents[3] / "src/dayahead/serve/pyfunc.py"


@pytest.fixture
def publish(project, params, monkeypatch):
    """Record the publication of a model; `away`: while the server is."""
    monkeypatch.setattr("dayahead.tracking.model_package.package_model", plain_package)

    def publish(number, name, previous="", *, away=False, **more):
        folder = project / "published" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(name)
        of_model = {"published": name, "folder": folder, "champion": name, "previous": previous}
        decision = publication(number=number, key=f"{number}-{name}", **(of_model | more))
        with monkeypatch.context() as patch:
            if away:
                patch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
            record_publication(params, decision, CODE)

    return publish


def aliases(store):
    """The published name behind each alias."""
    client = store.client
    found = client.get_registered_model("shop").aliases
    return {
        alias: client.get_model_version("shop", version).tags[PUBLISHED_TAG]
        for alias, version in found.items()
    }


def versions(store):
    found = store.client.search_model_versions("name = 'shop'")
    return sorted(version.tags[PUBLISHED_TAG] for version in found)


@pytest.mark.long
def test_a_version_holds_the_files_and_aliases_are_the_current_and_the_previous_one(publish, store):
    publish(1, "a")
    assert aliases(store) == {"champion": "a"}
    [version] = store.client.search_model_versions("name = 'shop'")
    [file] = store.client.list_artifacts(version.run_id, "published/a")
    assert file.path == "published/a/config.json"
    assert (Path(version.source) / "config.json").read_text() == "a"
    runs = store.client.search_runs([store.experiment_id("dayahead")])
    found = {run.info.run_name: run.data.tags for run in runs}
    assert found.keys() == {"nightly", "nightly 2026-01-05"}
    assert found["nightly"]["dvc.stage"] == "nightly"
    assert "dvc.stage" not in found["nightly 2026-01-05"]  # a night is no pipeline
    for tags in found.values():
        assert tags["mlflow.source.name"] == "dayahead nightly"
    publish(2, "b", "a")
    assert aliases(store) == {"champion": "b", "previous": "a"}
    assert versions(store) == ["a", "b"]


@pytest.mark.long
def test_a_rollback_moves_the_aliases_and_marks_the_version(publish, store):
    publish(1, "a")
    publish(2, "b", "a")
    back = {"published": "", "folder": None, "champion": "a", "previous": "b"}
    publish(3, "b", **back, withdrawn={"b": "clicks fell"})
    assert aliases(store) == {"champion": "a", "previous": "b"}
    marked = {v.tags[PUBLISHED_TAG]: v.tags.get(WITHDRAWN_TAG) for v in
              store.client.search_model_versions("name = 'shop'")}  # fmt: skip
    assert marked == {"a": None, "b": "clicks fell"}
    forth = {"published": "", "folder": None, "champion": "b", "previous": "a"}
    publish(4, "b", **forth)
    assert aliases(store) == {"champion": "b", "previous": "a"}
    assert WITHDRAWN_TAG not in store.client.get_model_version_by_alias("shop", "champion").tags


@pytest.mark.long
def test_what_the_server_missed_arrives_later_and_moves_no_alias_back(publish, store):
    publish(1, "a")
    publish(2, "b", "a", away=True)
    assert aliases(store) == {"champion": "a"}
    publish(3, "c", "b")
    assert aliases(store) == {"champion": "c"}  # b, the previous one, is not there yet
    report = sync_all()
    assert report.failures == {}
    assert aliases(store) == {"champion": "c", "previous": "b"}
    assert versions(store) == ["a", "b", "c"]
    assert sync_all().uploaded == {}


@pytest.mark.long
def test_a_new_history_moves_the_aliases_too(publish, store):
    """Its numbers start again; its windows do not."""
    publish(7, "b", "a")
    publish(1, "c", window="2026-01-06", published="", folder=None, champion="")  # held
    assert aliases(store) == {"champion": "b"}
    publish(2, "c", window="2026-01-06")
    assert aliases(store) == {"champion": "c"}
    publish(8, "d", "b")  # an older window, sent late
    assert aliases(store) == {"champion": "c"}


@pytest.mark.long
def test_a_killed_record_is_completed_by_the_next(publish, store):
    """Killed after the registry's entry, before the end: uploaded again, one version."""
    publish(1, "a")
    outbox = Outbox(cache_root() / "outbox/nightly-1-a/nightly.jsonl")
    lines = outbox.path.read_bytes().splitlines(keepends=True)
    outbox.path.write_bytes(b"".join(line for line in lines if b'"end"' not in line))
    Progress.path(outbox).unlink()
    for _ in range(2):  # the second time it is whole
        publish(1, "a")
        assert versions(store) == ["a"]
    assert aliases(store) == {"champion": "a"}
    assert len(outboxes()) == 1


@pytest.mark.long
def test_a_model_that_cannot_be_packaged_is_no_error(publish, store, monkeypatch):
    """It is sent by the next record of the same decision."""

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dayahead.tracking.model_package.package_model", full)
        publish(1, "a")
    assert versions(store) == []
    publish(1, "a")
    assert versions(store) == ["a"]


def test_without_models_in_the_store_there_are_no_versions(publish, params, store):
    quiet = replace(params, tracking=replace(params.tracking, log_model=False))
    decision = publication(published="a", folder=Path("published/a"))
    record_publication(quiet, decision, CODE)
    assert versions(store) == []
