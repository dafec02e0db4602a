from pathlib import Path

import pytest

from dayahead.config.loading import read_yaml
from dayahead.config.params import load_params
from dayahead.core.errors import ConfigError
from dayahead.dataset.dataset import load_dataset
from dayahead.presets import preset_options

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "presets").glob("*/*.yaml"))
NAMES = [path.relative_to(ROOT / "presets").with_suffix("").as_posix() for path in PRESETS]
ROWS = {
    "gru-clm", "gpt2-clm", "transformer_xl-clm", "bert-mlm", "electra-rtd", "xlnet-plm",
    "xlnet-clm", "xlnet-rtd", "xlnet-mlm", "xlnet-mlm-concat", "xlnet-mlm-concat-soft-one-hot",
    "xlnet-mlm-elementwise",
}  # fmt: skip


def options_of(name):
    return preset_options(name, ROOT / "presets", ROOT / "params.yaml")


def test_every_neural_row_of_the_papers_table_has_one():
    wanted = {f"{name}/{row}" for name in ("rees46", "g1", "adressa") for row in ROWS}
    wanted |= {f"yoochoose/{row}" for row in ROWS if not row.startswith("xlnet-mlm-")}
    assert set(NAMES) == wanted
    assert len(wanted) == 45


@pytest.mark.parametrize("name", NAMES)
def test_it_fits_the_settings_and_the_data_set(name, monkeypatch):
    monkeypatch.setenv("DAYAHEAD_DATA", "/data")
    options = dict(option.removeprefix("-S").split("=", 1) for option in options_of(name))
    assert not any(" " in option for option in options_of(name))
    data_set = load_dataset(options["dataset"], ROOT / "datasets")
    assert name.split("/")[0] == options["dataset"]
    features = options.get("model.features", "[]").strip("[]")
    assert set(filter(None, features.split(","))) <= set(data_set.features)
    assert options["evaluation.candidates"] == "all"
    assert options["window.overrun"] == "keep"


def test_the_papers_figures_are_carried_over_exactly():
    options = options_of("g1/xlnet-mlm")
    for option in ("-Smodel.d_model=384", "-Smodel.n_head=8", "-Straining.learning_rate=0.0001427",
                   "-Sloss.label_smoothing=0.3", "-Stask.mlm_probability=0.3"):  # fmt: skip
        assert option in options


def test_the_settings_themselves_are_a_preset_of_nothing(tmp_path):
    (tmp_path / "mine").mkdir()
    text = "model:\n  n_layer: 3\n  features: [hour]\n  config: {a: null, b: [1, x]}\n"
    (tmp_path / "mine" / "row.yaml").write_text(text)
    found = preset_options("mine/row", tmp_path, ROOT / "params.yaml")
    assert found == ["-Smodel.n_layer=3", "-Smodel.features=[hour]",
                     "-Smodel.config={a:null,b:[1,x]}"]  # fmt: skip
    assert load_params(ROOT / "params.yaml").model.n_layer != 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  layers: 3\n", "model.layers: Unexpected"),
        ("model:\n  n_layer: -3\n", "n_layer"),
    ],
)
def test_a_preset_that_does_not_fit_is_refused(tmp_path, text, message):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "row.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        preset_options("mine/row", tmp_path, ROOT / "params.yaml")


def test_an_unknown_preset_names_the_known():
    with pytest.raises(ConfigError, match=r"no such preset; known are .*g1/gpt2-clm"):
        options_of("g1/gpt3")


def test_what_is_read_is_what_is_written():
    for path in PRESETS:
        assert read_yaml(path)["dataset"] == path.parent.name
