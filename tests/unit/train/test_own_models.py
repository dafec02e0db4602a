"""Models of another package: the example of docs/own-models.md, installed and fitted."""

import numpy as np
import pytest
import torch

from dayahead.config.baselines import is_baseline
from dayahead.config.effective_settings import effective_settings
from dayahead.core import plugins
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.model.building import build_model
from dayahead.model.checkpoint import load_model, weights_of
from dayahead.model.losses import Negatives, Scores
from dayahead.model.tensor_files import write_tensors
from dayahead.train.saved_model import saved_ranks
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import (
    loss_config,
    loss_of,
    ranks_of,
    tiny_params,
    tiny_statistics,
    train_study,
)
from support.user_packages import MODULE, example
from support.window_folders import markov_days, write_window_folder

FADING = {"model": {"architecture": "fading", "config": {"factor": 0.8}}}
STUDIES = {
    "baseline": FADING,
    "backbone and loss": {
        "model": {"architecture": "convolution"},
        "loss": {"name": "hinge", "negatives": 8},
    },
    "network of memory": {"model": {"architecture": "memory", "network": "convolution"}},
}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), markov_days(4, 40, 15))


@pytest.mark.parametrize(
    "study",
    [
        "baseline",
        "backbone and loss",
        pytest.param("network of memory", marks=pytest.mark.slow),
    ],
)
def test_the_example_is_fitted_saved_and_read_again(shop_models, windows, tmp_path, study):
    out = train_study(windows, tmp_path / "out", STUDIES[study])
    folder = WindowFolder(windows)
    *_, last = folder.windows
    evaluated = ranks_of(out, last.name)
    assert len({*evaluated.tolist()}) > 1
    sections = {**STUDIES[study], "training": {"fit_last": False}}
    train_study(windows, tmp_path / "saved", sections)
    stored = load_model(tmp_path / "saved" / "models")
    assert np.array_equal(saved_ranks(stored, folder, last, "all").ranks, evaluated)


def built(**model):
    """Build a model with these settings of the section `model`."""
    return build_model(tiny_params({"model": model}), tiny_statistics(), {}, seed=1)


OF_PROJECT = {
    "baseline": {"model": {"architecture": "own_models:FadingPopularity"}},
    "backbone and loss": {
        "model": {"architecture": "own_models:Convolution"},
        "loss": {"name": "own_models:hinge", "negatives": 8},
    },
}


@pytest.mark.parametrize("study", [*OF_PROJECT])
def test_a_module_of_the_project_is_fitted_saved_and_read_again(
    project_module, windows, tmp_path, study, fits
):
    module = project_module("own_models", example("shop_models.py"))
    assert is_baseline(OF_PROJECT[study]["model"]["architecture"]) == (study == "baseline")
    shared = {"cache": tmp_path / "cache"}
    sections = {**OF_PROJECT[study], "training": {"fit_last": False}}
    out = train_study(windows, tmp_path / "out", sections, **shared)
    folder, n_fits = WindowFolder(windows), len(fits)
    last = folder.windows[-1]
    stored = load_model(out / "models")
    assert np.array_equal(saved_ranks(stored, folder, last, "all").ranks, ranks_of(out, last.name))
    module.write_text(module.read_text() + "\nVERSION = 2\n")
    train_study(windows, tmp_path / "again", sections, **shared)
    assert len(fits) == 2 * n_fits  # the source is part of the keys


def test_what_a_module_of_the_project_lacks_is_named(project_module):
    project_module("own_models", example("shop_models.py"))
    for name, message in (
        ("own_model:Convolution", "no .*project/own_model.py; .*git add"),
        ("own_models:Convolutions", "cannot be loaded .*did you mean Convolution"),
        ("torch:relu", "no .*/torch.py"),
        ("json:JSONDecoder", "no .*/json.py"),
        ("own_models:hinge", "expected a subclass of .*Baseline.*, found no class"),
    ):
        with pytest.raises(ConfigError, match=f"model.architecture: {name}: {message}"):
            tiny_params({"model": {"architecture": name}})
    with pytest.raises(
        ConfigError, match=r"loss\.name: .*Convolution: expected a func.*found a class"
    ):
        tiny_params({"loss": {"name": "own_models:Convolution"}})
    project_module("own_broken", "import nowhere\n")
    with pytest.raises(ConfigError, match=r"cannot be loaded \(ModuleNotFoundError.*nowhere"):
        tiny_params({"model": {"architecture": "own_broken:Model"}})


def test_what_a_model_folder_brings_is_not_imported(project_module, monkeypatch):
    evil = project_module("own_models", "raise AssertionError\n")
    folder = evil.parent / "shop_model"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "evil.py").write_text("raise AssertionError\n")
    for name in ("shop_model.evil:Model", "shop_model:Model"):
        with pytest.raises(ConfigError, match=r"model\.architecture: .*shop_model"):
            tiny_params({"model": {"architecture": name}})
    (evil.parent / "model.safetensors").touch()  # the current folder is one of a model
    with pytest.raises(ConfigError, match=r"no .*own_models\.py"):
        tiny_params({"model": {"architecture": "own_models:Model"}})


def test_a_class_of_the_project_that_is_no_network_is_never_called(project_module):
    project_module("own_models", "class Other:\n    def __init__(self, **_):\n        1 / 0\n")
    with pytest.raises(ConfigError, match=r"subclass of torch\.nn\.Module or of .*Baseline"):
        built(architecture="own_models:Other")


def test_a_baseline_takes_its_settings_from_the_model_s_config(shop_models):
    assert built(**FADING["model"]).factor == 0.8
    for config, message in (
        ({"speed": 1}, r"model\.config: fading: .*speed"),
        ({"factor": 2}, r"factor: 2: expected a number from 0 to 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            built(architecture="fading", config=config)


def test_a_loss_is_the_function_of_the_package(shop_models):
    hinge = plugins.load_plugin("loss", "hinge")
    scores = Scores(
        torch.tensor([2.0]),
        torch.tensor([[1.5, 0.0, 2.0]]),
        torch.tensor([[True, True, False]]),
        9,
    )
    assert hinge(scores, None).tolist() == [0.25]  # 0.5 and 0 of two others


def test_changed_source_fits_everything_again(shop_models, windows, tmp_path, fits):
    shared = {"cache": tmp_path / "cache"}
    train_study(windows, tmp_path / "a", FADING, **shared)
    n_fits = len(fits)
    train_study(windows, tmp_path / "b", FADING, **shared)
    assert len(fits) == n_fits > 0
    shop_models.write_text(shop_models.read_text() + "\nVERSION = 2\n")
    train_study(windows, tmp_path / "c", FADING, **shared)
    assert len(fits) == 2 * n_fits


def test_a_package_that_cannot_be_imported_is_named(install):
    install("import nowhere\n", {"dayahead.baselines": {"broken": f"{MODULE}:Broken"}})
    with pytest.raises(ConfigError, match=r"baseline broken: .*shop-models.*No module.*nowhere"):
        built(architecture="broken")


def test_what_is_no_baseline_is_refused(install):
    install("Other = dict\n", {"dayahead.baselines": {"other": f"{MODULE}:Other"}})
    with pytest.raises(
        ConfigError, match=r"other: expected a subclass of .*Baseline, found <class 'dict'>"
    ):
        built(architecture="other")


def test_a_backbone_that_sees_the_future_is_refused(install):
    source = example("shop_models.py").replace("(2, 0) if causal else (1, 1)", "(1, 1)")
    install(source, {"dayahead.backbones": {"convolution": f"{MODULE}:Convolution"}})
    with pytest.raises(ConfigError, match="convolution does not fit the task"):
        built(architecture="convolution")


@pytest.mark.parametrize("group", ["baselines", "backbones"])
@pytest.mark.parametrize("name", ["gru", "memory"])
def test_our_own_names_win(install, group, name):
    install("Other = dict\n", {f"dayahead.{group}": {name: f"{MODULE}:Other"}})
    assert built(architecture=name, network="gru").network is not None
    assert not is_baseline(name)


def test_a_name_that_two_packages_declare_is_refused(install, tmp_path):
    install("Other = dict\n", {"dayahead.losses": {"hinge": f"{MODULE}:Other"}})
    other = tmp_path / "site" / "more_models-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: more-models\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text("[dayahead.losses]\nhinge = more_models:hinge\n")
    plugins.plugins.cache_clear()
    with pytest.raises(ConfigError, match=r"loss hinge: .*-models and .*-models both declare"):
        plugins.plugins("loss")


def test_a_package_without_an_init_file_and_its_version_are_in_the_keys(install):
    module = install("", {"dayahead.losses": {"hinge": "shop.losses.hinge:hinge"}})
    folder = module.parent / "shop" / "losses"
    folder.mkdir(parents=True)
    found = []
    for text in ("hinge = 1", "hinge = 2"):
        (folder / "hinge.py").write_text(text)
        found.append(plugins.plugin_sources([("loss", "hinge")]))
    about = module.parent / "shop_models-1.0.dist-info" / "METADATA"
    about.write_text(about.read_text().replace("1.0", "1.1"))
    plugins.plugins.cache_clear()
    found.append(plugins.plugin_sources([("loss", "hinge")]))
    assert len({each["loss hinge"] for each in found}) == 3


def test_a_loss_of_another_package_is_given_all_settings_of_losses(shop_models):
    held = effective_settings(tiny_params({"loss": {"name": "hinge", "negatives": 8}}))["loss"]
    assert {"elu", "logq", "gbce_calibration", "bpr_max_regularisation"} <= held.keys()


def test_settings_of_a_baseline_of_another_package_are_in_its_keys(shop_models):
    assert effective_settings(tiny_params(FADING))["model"]["config"] == {"factor": 0.8}


def test_a_damaged_state_is_refused(shop_models, windows, tmp_path):
    train_study(windows, tmp_path, FADING)
    models = tmp_path / "models"
    stored = load_model(models)
    weights = weights_of(stored.model)
    weights["counts"][0] = torch.nan
    kept = {"candidates": torch.from_numpy(stored.candidates)}
    kept["popularity"] = torch.from_numpy(stored.popularity)
    write_tensors(
        models / "model.safetensors",
        kept | {f"weights.{name}": each for name, each in weights.items()},
    )
    with pytest.raises(ModelFileError, match=r"counts: expected finite numbers"):
        load_model(models)


def test_names_of_packages_are_offered_where_one_is_unknown(shop_models):
    with pytest.raises(ConfigError, match=r"loss\.name: did you mean hinge\? .*top1_max, hinge, "):
        tiny_params({"loss": {"name": "hinges"}})
    with pytest.raises(ConfigError, match=r"did you mean convolution"):
        built(architecture="convolutions")


def fit_of_a_loss(install, source):
    """Compute a loss, and its gradients, of a package with this source of `hinge`."""
    install(source, {"dayahead.losses": {"hinge": f"{MODULE}:hinge"}})
    config = loss_config(name="hinge", negatives=8)
    negatives = Negatives(torch.arange(8), torch.zeros(8))
    hidden = torch.ones(5, 4, requires_grad=True)
    rows = hidden, torch.arange(80.0).view(20, 4) / 80, torch.zeros(20), torch.arange(5)
    loss_of(config, *rows, negatives).backward()
    return hidden.grad


@pytest.mark.parametrize(
    ("body", "found"),
    [("scores.margin.mean()", r"shape \[\]"), ("scores.margin", r"shape \[\d+, 8\]"),
     ("None", "None")],
)  # fmt: skip
def test_a_loss_must_return_one_value_for_each_target(install, body, found):
    with pytest.raises(ConfigError, match=rf"loss\.name: hinge must return.*found {found}"):
        fit_of_a_loss(install, f"def hinge(scores, config):\n    return {body}\n")


def test_a_loss_without_gradients_is_refused(install):
    with pytest.raises(ConfigError, match=r"hinge must return losses with gradients .* detach"):
        fit_of_a_loss(install, "def hinge(scores, config):\n    return scores.targets.detach()\n")


def test_a_loss_that_fails_is_named_with_its_line(install):
    source = "def hinge(scores, config):\n    return rest(scores)\n\n\ndef rest(scores):\n    {}\n"
    expected = r"hinge fails at .*shop_models\.py:6: {}; correct it there"
    with pytest.raises(ConfigError, match=expected.format("AttributeError: .* 'nonsense'")):
        fit_of_a_loss(install, source.format("return scores.nonsense"))
    with pytest.raises(ConfigError, match=expected.format("RuntimeError: .*")):
        fit_of_a_loss(
            install, source.format("return scores.targets @ scores.negatives.T.sum(0)[1:]")
        )
    with pytest.raises(
        ConfigError,
        match=r"fails at its call with \(scores, config\): TypeError: .*; correct it there",
    ):
        fit_of_a_loss(install, "def hinge(scores):\n    return scores.targets\n")


def test_a_class_is_no_loss(install):
    source = (
        "class hinge:\n    def __call__(self, scores, config):\n        return scores.targets\n"
    )
    with pytest.raises(ConfigError, match=r"loss hinge: expected a function, found <class "):
        fit_of_a_loss(install, source)


def test_a_loss_that_is_computed_again_backwards_keeps_its_gradients(install):
    source = "def hinge(scores, config):\n    return scores.mean((1 - scores.margin).exp())\n"
    assert fit_of_a_loss(install, source).abs().sum() > 0
