import pytest

from dayahead.core.errors import ConfigError
from dayahead.tracking.lineage import Pipeline

STAGES = ("download", "train", "aggregate")


def prints(project):
    pipeline = Pipeline(project)
    return {stage: pipeline.fingerprint_of(stage) for stage in STAGES}


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
def test_a_change_reaches_its_stage_and_those_after(cold_project, file, old, new, changed):
    before = prints(cold_project)
    edit(cold_project / file, old, new)
    after = prints(cold_project)
    assert tuple(stage for stage in STAGES if before[stage] != after[stage]) == changed


def test_outputs_do_not_count_but_by_their_stage(cold_project):
    before = prints(cold_project)
    (cold_project / "data/raw").mkdir(parents=True)
    (cold_project / "data/raw/x.parquet").write_text("never read")
    (cold_project / "code/model.pyc").write_text("neither")
    assert prints(cold_project) == before


def test_new_content_of_a_source_counts_by_the_manifest(cold_project):
    manifest = cold_project / "data/raw/manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"rows": 1}')
    before = prints(cold_project)
    edit(manifest, "1", "2")
    after = prints(cold_project)
    assert [stage for stage in STAGES if before[stage] != after[stage]] == ["train", "aggregate"]


def test_an_unquoted_date_is_a_value_like_any(cold_project):
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


def test_upstream_is_told_earliest_first(cold_project):
    pipeline = Pipeline(cold_project)
    assert pipeline.upstream_of("download") == []
    assert pipeline.upstream_of("aggregate") == ["download", "train"]


def test_an_unknown_stage_is_refused(cold_project):
    with pytest.raises(ConfigError, match="no stage 'fly'"):
        Pipeline(cold_project).fingerprint_of("fly")
