"""How to reproduce a run: hashes that other programs compute too, and its command."""

import hashlib
import shlex
import shutil
from pathlib import Path

from dvc.utils.hydra import apply_overrides

from dayahead.aggregate.origin import origin_of
from dayahead.config.changed_settings import DEFAULTS, changed_settings, command_of
from dayahead.config.params import flat_settings, load_params
from support.results_folders import write_results

ROOT = Path(__file__).parents[3]
OVERRIDES = [
    *("dataset=g1", "window.unit=hour", "window.last=2017-10-03T23", "model.features=[hour,price]"),
    *(
        "+model.config.n_inner=32",
        "training.learning_rate=0.5",
        "evaluation.attention_of=['a b','11562161','a, b','it\\'s','a\\b\\\\','','TRUE','-x']",
    ),
    *("window.first=2017-10-01T00", "tracking.experiment='2017-10-03'"),
]


def settings_with(folder, overrides):
    shutil.copy(ROOT / "params.yaml", folder)
    if overrides:
        apply_overrides(str(folder / "params.yaml"), overrides)
    return flat_settings(load_params(folder / "params.yaml"))


def test_the_defaults_are_params_yaml():
    assert DEFAULTS.read_text() == (ROOT / "params.yaml").read_text(), (
        "run `cp params.yaml src/dayahead/config/defaults.yaml`"
    )


def test_unchanged_settings_have_a_short_command(tmp_path):
    settings = settings_with(tmp_path, [])
    assert changed_settings(settings) == {}
    assert command_of(settings) == "dvc exp run"


def test_only_changed_settings_are_listed_with_their_defaults(tmp_path):
    changed = changed_settings(settings_with(tmp_path, OVERRIDES))
    assert changed["dataset"] == ("g1", "synthetic")
    assert changed["window.last"] == ("2017-10-03T23", None)
    assert list(changed) == [
        *("dataset", "window.unit", "window.first", "window.last"),
        *("model.config", "model.features", "training.learning_rate", "evaluation.attention_of"),
        "tracking.experiment",
    ]


def test_the_command_gives_the_settings_again(tmp_path):
    settings = settings_with(tmp_path, OVERRIDES)
    words = shlex.split(command_of(settings))
    given = [word for word in words[3:] if word != "-S"]
    assert settings_with(tmp_path, given) == settings


def test_hashes_are_those_of_the_files(tmp_path):
    results = write_results(tmp_path / "results", {"2019-10-02": [1, 2]})
    origin = origin_of(tmp_path / "raw", results, {})
    manifest = (tmp_path / "raw" / "manifest.json").read_bytes()
    assert origin.data_sha256 == hashlib.sha256(manifest).hexdigest()
    table = (results / "windows.csv").read_bytes()
    assert origin.results_md5 == hashlib.md5(table, usedforsecurity=False).hexdigest()
    assert (origin.n_files, origin.n_bytes, origin.n_events) == (1, 1234, 100)
