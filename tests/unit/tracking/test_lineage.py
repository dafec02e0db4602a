import os

import pytest

from dayahead.core.errors import ConfigError
from dayahead.tracking.lineage import lineage_of, origin_tags
from support.git_projects import commit_all

STAGES = ("download", "train", "aggregate")


def prints(project):
    return {stage: lineage_of(stage, project).fingerprint for stage in STAGES}


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("sources/synthetic.csv", "a", "z", STAGES),
        ("code/model.py", "1", "2", STAGES[1:]),
        ("params.yaml", "n_layer: 2", "n_layer: 4", STAGES[1:]),
        ("params.yaml", "origin: calendar", "origin: first_session", ()),
        ("dvc.yaml", "stage.py aggregate", "stage.py aggregate -v", STAGES[2:]),
    ],
)
def test_a_change_reaches_its_stage_and_all_later_ones(cold_project, file, old, new, changed):
    before = prints(cold_project)
    edit(cold_project / file, old, new)
    after = prints(cold_project)
    assert tuple(stage for stage in STAGES if before[stage] != after[stage]) == changed


def test_outputs_count_only_by_their_stage(cold_project):
    before = prints(cold_project)
    (cold_project / "data/raw").mkdir(parents=True)
    (cold_project / "data/raw/x.parquet").write_text("never read")
    (cold_project / "code/model.pyc").write_text("neither")
    assert prints(cold_project) == before


def test_a_changed_source_counts_by_the_manifest(cold_project):
    manifest = cold_project / "data/raw/manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"rows": 1}')
    before = prints(cold_project)
    edit(manifest, "1", "2")
    after = prints(cold_project)
    assert [stage for stage in STAGES if before[stage] != after[stage]] == ["train", "aggregate"]


def test_an_unquoted_date_equals_its_text(cold_project):
    before = prints(cold_project)
    edit(cold_project / "params.yaml", "n_layer: 2", "n_layer: 2026-01-05")
    quoted = prints(cold_project)
    assert quoted["train"] != before["train"]
    edit(cold_project / "params.yaml", "n_layer: 2026-01-05", "n_layer: '2026-01-05'")
    assert prints(cold_project) == quoted


def test_templates_are_filled_in(cold_project):
    before = prints(cold_project)
    (cold_project / "sources/other.csv").write_text("a,b\n")
    edit(cold_project / "params.yaml", "dataset: synthetic", "dataset: other")
    assert prints(cold_project)["download"] != before["download"]


def test_upstream_stages_come_earliest_first(cold_project):
    expected = prints(cold_project)
    assert lineage_of("download", cold_project).upstream == {}
    found = lineage_of("aggregate", cold_project)
    assert list(found.upstream.items()) == [(name, expected[name]) for name in STAGES[:2]]
    assert lineage_of("train", cold_project).params == ("model", "training")


def test_an_unknown_stage_is_rejected(cold_project):
    with pytest.raises(ConfigError, match="no stage 'fly'"):
        lineage_of("fly", cold_project)


def test_tags_link_to_commit_and_experiment(cold_project, monkeypatch):
    monkeypatch.delenv("DVC_EXP_NAME")
    assert "git.commit" not in origin_tags("train")
    commit_all(cold_project)
    tags = origin_tags("train")
    assert tags["git.dirty"] == "false"
    assert f"git checkout {tags['git.commit']}" in tags["mlflow.note.content"]
    (cold_project / "params.yaml").write_text("changed")
    assert origin_tags("train")["git.dirty"] == "true"
    assert "uncommitted" in origin_tags("train")["mlflow.note.content"]
    monkeypatch.setenv("DVC_EXP_NAME", "lofty-sail")
    assert "dvc exp apply lofty-sail" in origin_tags("train")["mlflow.note.content"]


def test_tags_need_no_git(cold_project, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    assert "git.commit" not in origin_tags("train")
