"""Presets: one for every row of the paper's tables; all fit settings and data set."""

import re
import shutil
from functools import cache
from pathlib import Path
from textwrap import indent

import pytest
from dvc.utils.hydra import apply_overrides
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.config.architectures import RECIPES
from dayahead.config.params import load_params
from dayahead.core.errors import ConfigError
from dayahead.dataset.schema import load_dataset
from dayahead.presets import add_preset, preset_names, preset_options

ROOT = Path(__file__).parents[2]
NAMES = preset_names(ROOT / "presets")
ROWS = {
    "gru-clm", "gpt2-clm", "transformer_xl-clm", "bert-mlm", "electra-rtd", "xlnet-plm",
    "xlnet-clm", "xlnet-rtd", "xlnet-mlm", "xlnet-mlm-concat", "xlnet-mlm-concat-soft-one-hot",
    "xlnet-mlm-elementwise",
}  # fmt: skip
OTHERS = {"gru4rec", "gru4rec-bpr-max", "vsknn", "stan", "vstan"}
TUNED = {"g1/stan-tuned", "g1/vstan-tuned"}
"""Of our own: the winners of searches on valid sessions."""
LIVE = {"live/ten-minutes"}
MODELS = {f"models/{name}" for name in RECIPES}


def options_of(name):
    return preset_options(name, ROOT / "presets", ROOT / "params.yaml")


def options_in(folder, text, params=ROOT / "params.yaml"):
    """Options of a preset, the settings of `text`."""
    (folder / "mine.yaml").write_text("rows:\n  row:\n" + indent(text, "    "))
    return preset_options("mine/row", folder, params)


def test_every_row_of_the_papers_tables_has_a_preset():
    wanted = {f"{name}/{row}" for name in ("rees46", "g1", "adressa") for row in ROWS}
    wanted |= {f"yoochoose/{row}" for row in ROWS if not row.startswith("xlnet-mlm-")}
    data_sets = ("rees46", "yoochoose", "g1", "adressa")
    wanted |= {f"{name}/{row}" for name in data_sets for row in OTHERS}
    wanted |= {"g1/memory", "diginetica/gru4rec-bpr-max"}
    assert set(NAMES) == wanted | TUNED | LIVE | MODELS
    assert len(wanted) == 67


@pytest.mark.long
def test_every_preset_fits_the_settings_and_the_data_set(monkeypatch):
    monkeypatch.setenv("DAYAHEAD_DATA", "/data")
    data_set = cache(lambda name: load_dataset(name, ROOT / "datasets"))
    for name in set(NAMES) - LIVE - MODELS:
        options = options_of(name)
        assert not any(" " in option for option in options), name
        values = dict(option.removeprefix("-S").split("=", 1) for option in options)
        assert values["dataset"] == name.split("/")[0], name
        features = values.get("model.features", "[]").strip("[]")
        assert set(filter(None, features.split(","))) <= set(data_set(values["dataset"]).features)
        assert values["evaluation.candidates"] == "all", name
        assert values["window.overrun"] == "keep", name


def test_the_papers_figures_are_copied_exactly():
    options = options_of("g1/xlnet-mlm")
    for option in ("-Smodel.d_model=384", "-Smodel.n_head=8", "-Straining.learning_rate=0.0001427",
                   "-Sloss.label_smoothing=0.3", "-Stask.mlm_probability=0.3"):  # fmt: skip
        assert option in options


SHARED = {
    "model.n_layer": "1", "training.epochs": "10", "training.optimizer": "adagrad",
    "training.schedule": "constant", "loss.negatives": "2048", "loss.negatives_of_batch": "true",
}  # fmt: skip
CROSS_ENTROPY = ("sampled_softmax", "logq")
BPR_MAX = ("bpr_max", "bpr_max_regularisation", "elu")
OF_GRU4REC = {
    "YOOCHOOSE": ("g1 adressa yoochoose", CROSS_ENTROPY, [480, 0, 0.2, 0.07, 0, 0.2, 1]),
    "REES46": ("rees46", CROSS_ENTROPY, [512, 0.45, 0, 0.065, 0, 0.5, 1]),
    "RSC15": ("g1 adressa yoochoose", BPR_MAX, [100, 0, 0, 0.2, 0.1, 0, 0.5, 0.5]),
    "Coveo": ("rees46", BPR_MAX, [512, 0.35, 0, 0.05, 0.4, 0.2, 1.85, 1]),
    "DIGINETICA": ("diginetica", BPR_MAX, [512, 0.5, 0.3, 0.05, 0.15, 0.3, 0.9, 1]),
}
"""By the data set they are published for: those that have them here, the loss, and layers,
dropout_p_embed, dropout_p_hidden, learning_rate, momentum, sample_alpha and the loss's own."""


@pytest.mark.parametrize("published_for", OF_GRU4REC)
def test_the_figures_of_gru4recs_authors_are_copied_exactly(published_for):
    data_sets, (loss, *own), published = OF_GRU4REC[published_for]
    keys = ["model.d_model", "model.input_dropout", "model.dropout", "training.learning_rate",
            "training.momentum", "loss.popularity_exponent"]  # fmt: skip
    keys += [f"loss.{key}" for key in own]
    for name in data_sets.split():
        options = options_of(f"{name}/gru4rec{'-bpr-max' if loss == 'bpr_max' else ''}")
        found = dict(option.removeprefix("-S").split("=", 1) for option in options)
        assert (SHARED | {"loss.name": loss}).items() <= found.items()
        assert [float(found[key]) for key in keys] == published


def test_a_preset_becomes_options_and_leaves_params_yaml_alone(tmp_path):
    text = "model:\n  n_layer: 3\n  features: [hour]\n  item_embedding_dim: null\n"
    text += "  config: {activation: relu}\n"
    found = options_in(tmp_path, text)
    assert found == ["-Smodel.n_layer=3", "-Smodel.features=[hour]",
                     "-Smodel.item_embedding_dim=null",
                     "-S++model.config.activation=relu"]  # fmt: skip
    assert load_params(ROOT / "params.yaml").model.n_layer != 3
    shutil.copy(ROOT / "params.yaml", tmp_path)
    apply_overrides(str(tmp_path / "params.yaml"), [option[2:] for option in found])
    model = load_params(tmp_path / "params.yaml").model
    assert (model.n_layer, model.item_embedding_dim, model.config) == (
        *(3, None, {"activation": "relu"}),
    )


def test_settings_of_a_row_go_before_the_common_ones(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "common: {model: {n_layer: 3, n_head: 2}}\nrows: {row: {model: {n_layer: 4}}, plain: {}}\n"
    )
    for name, n_layer in (("mine/row", 4), ("mine/plain", 3)):
        found = preset_options(name, tmp_path, ROOT / "params.yaml")
        assert sorted(found) == ["-Smodel.n_head=2", f"-Smodel.n_layer={n_layer}"]


def test_a_preset_is_added_beside_others_or_takes_the_place_of_its_name(tmp_path):
    for n_layer, name in ((1, "a"), (2, "b"), (3, "a")):
        add_preset(f"tuned/{name}", {"model.n_layer": n_layer}, f"Trial {n_layer}.", tmp_path)
    assert preset_names(tmp_path) == ["tuned/a", "tuned/b"]
    found = [preset_options(f"tuned/{name}", tmp_path, ROOT / "params.yaml") for name in "ab"]
    assert found == [["-Smodel.n_layer=3"], ["-Smodel.n_layer=2"]]
    assert "# Trial 3." in (tmp_path / "tuned.yaml").read_text()


def test_a_date_of_a_preset_needs_no_quotes(tmp_path):
    found = options_in(tmp_path, "window:\n  last: 2026-01-06\n")
    assert found == ["-Swindow.last=2026-01-06"]


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "- model\n", "gpt2\n"])
def test_a_file_without_settings_is_named(tmp_path, text):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"^\S*mine\.yaml: \(top level\): "):
        preset_options("mine/row", tmp_path, ROOT / "params.yaml")
    params = tmp_path / "params.yaml"
    params.write_text(text)
    with pytest.raises(ConfigError, match=r"^\S*params\.yaml: \(top level\): "):
        options_in(tmp_path, "model:\n  n_layer: 3\n", params)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  layers: 3\n", "model.layers: Unexpected"),
        ("model:\n  n_layer: -3\n", "n_layer"),
    ],
)
def test_a_preset_that_does_not_fit_is_an_error(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        options_in(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "models/sasrek",
            "no such preset: models/sasrek; did you mean models/sasrec or models/gsasrec? `",
        ),
        ("x", "no such preset: x; expected one of adressa/bert-mlm, "),
    ],
)
def test_the_error_for_an_unknown_preset_names_those_like_it_or_all(name, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        options_of(name)


def test_the_command_lists_presets_from_any_folder_of_the_project(tmp_path, monkeypatch):
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "g1.yaml").write_text("rows: {one: {model: {n_layer: 1}}}")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "docs").mkdir()
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(tmp_path / "docs")
    listed = CliRunner().invoke(app, ["preset"])
    assert (listed.exit_code, listed.stdout) == (0, "g1/one\n")
    options = CliRunner().invoke(app, ["preset", "g1/one"], catch_exceptions=False)
    assert options.stdout == "-Smodel.n_layer=1\n"
