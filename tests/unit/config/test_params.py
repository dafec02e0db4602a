"""params.yaml: every error at once, with setting, rule and value."""

import copy
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dayahead.config.baselines import BASELINES, MEMORY
from dayahead.config.loading import read_yaml, validated
from dayahead.config.params import Params, flat_settings, load_params
from dayahead.core.errors import ConfigError

OWN = Path(__file__).parents[3] / "params.yaml"
VALUES = read_yaml(OWN)


def edited(changes):
    """The project's settings with some changed: edited({"model.d_model": 30})."""
    values = copy.deepcopy(VALUES)
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = values
        for name in sections:
            section = section[name]
        section[last] = value
    return values


def written(folder, values):
    path = folder / "params.yaml"
    YAML(typ="safe").dump(values, path)
    return path


def errors_in(values):
    """Lines of the error that values outside of single ranges cause."""
    with pytest.raises(ConfigError) as caught:
        validated(Params, values, "params.yaml")
    return str(caught.value).splitlines()


def test_the_projects_own_settings_are_read():
    params = load_params(OWN)
    assert isinstance(params, Params)
    assert params.evaluation.cutoffs == tuple(VALUES["evaluation"]["cutoffs"])


def test_flat_settings_are_named_as_dvc_names_them():
    flat = flat_settings(validated(Params, edited({"model.features": ["price"]}), "params.yaml"))
    assert flat["dataset"] == "synthetic"
    assert flat["model.features"] == ("price",)
    assert flat["window.first"] is None
    apart = {"dataset", "machine", "nightly"}
    sections = {name: value for name, value in VALUES.items() if name not in apart}
    keys = {f"{section}.{key}" for section, values in sections.items() for key in values}
    assert set(flat) == {"dataset", *keys}


def test_every_error_is_listed_at_once():
    wrong = {
        "model.d_model": -1,
        "model.n_heads": 4,
        "training.learning_rate": "fast",
        "evaluation.split": "train",
        "window.unit": None,
    }
    found = errors_in(edited(wrong))
    assert len(found) == len(wrong)
    for key, value in wrong.items():
        [line] = [line for line in found if line.startswith(f"params.yaml: {key}: ")]
        assert f"(got {value!r})" in line


def test_a_long_value_is_left_out_of_its_error():
    [line] = errors_in(edited({"model.d_model": ["wide"] * 100}))
    assert line.startswith("params.yaml: model.d_model: ")
    assert "wide" not in line


def test_a_missing_setting_is_named():
    values = edited({})
    del values["loss"]["label_smoothing"]
    [line] = errors_in(values)
    assert "loss.label_smoothing" in line


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("live.tick", 5, "expected 0, or a duration such as 10min"),
        ("live.tick", "5", "expected a duration up to a year"),
        ("live.tick", "0min", "expected a duration up to a year"),
        ("live.session_gap", "soon", "expected a duration up to a year"),
        ("memory.past_half_lives", ["4h", 3.0], "numbers of windows, or durations such as 4h"),
        ("memory.past_half_lives", ["4h", "60min"], "in ascending order, each once"),
        ("memory.past_half_lives", ["1h", "60min"], "in ascending order, each once"),
        ("memory.past_half_lives", ["always"], "expected a duration up to a year"),
    ],
)
def test_durations_are_checked(key, value, message):
    [line] = errors_in(edited({key: value}))
    assert line.startswith(f"params.yaml: {key}: ")
    assert message in line


NUMBERS = [
    f"{section}.{key}"
    for section, values in VALUES.items()
    if section != "dataset"
    for key, value in values.items()
    if isinstance(value, int | float) and not isinstance(value, bool)
]


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 10**12, 1e300])
def test_every_number_has_a_bound(value):
    others = [
        *("model.item_embedding_dim", "training.steps_per_window", "compute.processes"),
        *("compute.threads", "machine.workers", "machine.keep_fits"),
    ]
    keys = [key for key in [*NUMBERS, *others] if (key, value) != ("training.seed", 10**12)]
    lines = errors_in(edited(dict.fromkeys(keys, value)))
    assert [key for key in keys if not any(f" {key}" in line for line in lines)] == []
    assert len(keys) > 40
    for key in ("evaluation.cutoffs", "model.config"):
        inner = [value] if key == "evaluation.cutoffs" else {"eps": value}
        if key == "evaluation.cutoffs" or value not in (10**12, 1e300):
            assert any(f" {key}" in line for line in errors_in(edited({key: inner})))


ODD = [
    *(None, True, 0, -1, 1.5, 2**31, 2**63, 2**64, 10**400, float("inf"), float("nan"), 1e-320),
    *(
        "",
        " ",
        "\0",
        "x" * 10**5,
        "\ud800",
        "1e3",
        [],
        [None],
        [[]],
        {},
        {"": None},
        {"a": [1e400]},
    ),
]


@pytest.mark.parametrize("text", ['window: "\\ud800"', "window: &a [*a]", "model: &a {b: *a}"])
def test_values_that_are_no_settings_are_named(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="a value cannot be read"):
        load_params(path)


@pytest.mark.long
def test_odd_values_of_every_setting_are_read_or_named():
    n_refused = 0
    for key in [f"{name}.{key}" for name in VALUES if name != "dataset" for key in VALUES[name]]:
        for value in ODD:
            try:
                validated(Params, edited({key: value}), "params.yaml")
            except ConfigError:
                n_refused += 1
    assert n_refused > 1300


@pytest.mark.parametrize("network", ["gpt2", "none"])
def test_the_network_inside_memory_is_not_sharded(tmp_path, network):
    model = {"model.architecture": "memory", "model.network": network}
    path = written(tmp_path, edited({**model, "compute.shard_items": True}))
    if network == "none":
        assert load_params(path)
        return
    with pytest.raises(ConfigError, match=r"^[^{]*compute\.shard_items: .*model\.network to none"):
        load_params(path)


@pytest.mark.parametrize(
    "zone", ["", "Europe", "Oslo", "../UTC", "\0", "tzdata.zi", " UTC", "/etc"]
)
def test_a_time_zone_must_be_known(zone):
    [line] = errors_in(edited({"window.timezone": zone}))
    assert "window.timezone: " in line
    assert "expected an IANA name such as Europe/Oslo" in line


def test_values_out_of_range_are_errors():
    cases = [
        ("training.epochs", 0),
        ("training.epochs", 1.5),
        ("training.epochs", True),
        ("training.seed", -1),
        ("training.max_grad_norm", 0),
        ("model.dropout", 1.0),
        ("model.decay", 1.1),
        ("task.mlm_probability", 0),
        ("loss.label_smoothing", 1),
        ("evaluation.cutoffs", []),
        ("evaluation.cutoffs", [0]),
        ("compute.processes", 0),
        ("compute.processes", "all"),
        ("dataset", "../elsewhere"),
        ("preprocess.fit_windows", 0),
        ("machine.max_restarts", -1),
    ]
    for key, value in cases:
        assert any(key in line for line in errors_in(edited({key: value}))), (key, value)


def test_warmup_ends_before_the_steps_of_a_window():
    [line] = errors_in(edited({"training.steps_per_window": 10, "training.warmup_steps": 10}))
    assert "warmup_steps" in line


def test_warmup_ends_before_the_steps_of_a_network_in_memory(tmp_path):
    changes = {"training.warmup_steps": 2000}
    with pytest.raises(ConfigError, match=r"warmup_steps \(2000\) must be below memory"):
        load_params(written(tmp_path, edited(changes)))
    for other in ({"memory.network_steps": None}, {"model.network": "none"}):
        assert load_params(written(tmp_path, edited({**changes, **other})))


def test_all_candidates_need_the_full_catalogue(tmp_path):
    changes = {"evaluation.candidates": "all"}
    with pytest.raises(ConfigError) as caught:
        load_params(written(tmp_path, edited(changes)))
    assert "set model.catalogue to full or evaluation.candidates to seen" in str(caught.value)
    assert load_params(written(tmp_path, edited({**changes, "model.catalogue": "full"})))


@pytest.mark.parametrize("architecture", [*BASELINES[2:], MEMORY])
def test_sessions_are_not_counted_several_times(tmp_path, architecture):
    changes = {"model.architecture": architecture, "training.protocol": "sliding"}
    with pytest.raises(ConfigError, match=rf"{architecture} would count.*carry_model to false"):
        load_params(written(tmp_path, edited(changes)))
    assert load_params(written(tmp_path, edited({**changes, "training.carry_model": False})))


@pytest.mark.parametrize("architecture", ["popularity", "own", "gru"])
def test_a_model_is_carried_on_that_keeps_no_counts(tmp_path, architecture):
    changes = {"model.architecture": architecture, "training.protocol": "sliding"}
    assert load_params(written(tmp_path, edited({**changes, "training.carry_model": True})))


def test_a_fit_end_to_end_needs_a_network(tmp_path):
    changes = {"memory.end_to_end": True, "model.network": "none"}
    with pytest.raises(ConfigError, match=r"memory\.end_to_end fits the network of memory"):
        load_params(written(tmp_path, edited(changes)))
    assert load_params(written(tmp_path, edited({**changes, "model.network": "gpt2"})))


@pytest.mark.parametrize("text", ["", "[1, 2]"])
def test_what_is_no_mapping_is_an_error(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="top level"):
        load_params(path)
