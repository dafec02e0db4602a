"""Cache keys change with everything that a fit or an evaluation depends on, and nothing else."""

import shutil
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dayahead.core.columns import FIRST_WINDOW, ITEM_ID, VALUE
from dayahead.core.files import read_json, write_json, write_parquet
from dayahead.distributed.process import Process, Rank
from dayahead.train import cache_keys
from dayahead.train.cache_keys import CacheKeys
from dayahead.train.catalogue import Catalogue
from dayahead.train.run import Run
from dayahead.windows.folder import GRACE_SUFFIX, WindowFolder, vocabulary_path, window_path
from support.memory_models import MEMORY_WITH_GPT2
from support.other_settings import OTHER, OTHER_EVALUATION
from support.tiny_settings import merge_sections, tiny_study
from support.typed_windows import add_types
from support.window_folders import day, markov_days, write_window_folder

DAYS = markov_days(n_days=5, sessions_per_day=12, n_items=300)
IN_NO_KEY = {"fit_last", "cutoffs", "metrics"}
PLM, RTD, GBCE = ({"task": {"name": "plm"}}, {"task": {"name": "rtd"}}, {"loss": {"name": "gbce"}})
BPR_MAX = {"loss": {"name": "bpr_max"}}
ADAGRAD = {"training": {"optimizer": "adagrad"}}
SLIDING = {"training": {"protocol": "sliding"}}
TRANSITIONS = {"model": {"architecture": "transitions"}}
VSKNN, VSTAN, SLIST = ({"model": {"architecture": name}} for name in ("vsknn", "vstan", "slist"))
OF_VSKNN = [f"neighbours.{name}" for name in ("position_weight", "step_weight", "push_reminders")]
MEMORY = {"model": {"architecture": "memory"}}
OWN = {"model": {"architecture": "own"}}
BOOST = {"model": {"architecture": "stan", "remind": "boost"}}
OF_BOOST = ("model.remind_weight", "model.remind_scale")
NEEDED = {
    "model.decay": TRANSITIONS,
    "model.network": MEMORY,
    "model.remind": TRANSITIONS,
    **dict.fromkeys(OF_BOOST, BOOST),
    **dict.fromkeys(OF_VSKNN, VSKNN),
    **{
        name: VSTAN
        for name in (f"neighbours.{name}" for name in OTHER["neighbours"])
        if name not in OF_VSKNN
    },
    **{f"linear.{name}": SLIST for name in OTHER["linear"]},
    **{f"memory.{name}": MEMORY for name in OTHER["memory"]},
    "memory.network_steps": MEMORY_WITH_GPT2,
    "live.tick": MEMORY,
    "live.session_gap": {**MEMORY, "live": {"tick": "1h"}},
    "task.mlm_probability": {"task": {"name": "mlm"}},
    "task.plm_probability": PLM,
    "task.plm_max_span": PLM,
    "task.rtd_replacements": RTD,
    "task.rtd_generator_weight": RTD,
    "task.rtd_discriminator_weight": RTD,
    "loss.negatives": GBCE,
    "loss.negatives_of_batch": GBCE,
    "loss.popularity_exponent": GBCE,
    "loss.gbce_calibration": GBCE,
    "loss.logq": {"loss": {"name": "sampled_softmax"}},
    "loss.bpr_max_regularisation": BPR_MAX,
    "loss.elu": BPR_MAX,
    "training.history": SLIDING,
    "training.carry_model": SLIDING,
    "training.cosine_cycles": {"training": {"schedule": "cosine"}},
    "training.momentum": ADAGRAD,
}
"""Settings without which another has no effect: gpt2, clm, softmax, linear and incremental."""
WITHOUT_EFFECT = [
    *(({}, name) for name in NEEDED),
    ({"training": {"steps_per_window": 3}}, "training.epochs"),
    (ADAGRAD, "training.weight_decay"),
    ({"loss": {"name": "bpr", "negatives": 0}}, "loss.popularity_exponent"),
    ({"loss": {"name": "auto"}}, "loss.gbce_calibration"),
    *((TRANSITIONS, name) for name in ("model.d_model", "loss.temperature", "task.name")),
    (TRANSITIONS, "model.past_length"),
    ({**TRANSITIONS, "training": {"protocol": "from_scratch"}}, "model.decay"),
    *((TRANSITIONS, name) for name in OF_BOOST),
    *((OWN, name) for name in ("model.remind", *OF_BOOST)),
    *((MEMORY, name) for name in ("model.remind", *OF_BOOST)),
    ({"model": {"architecture": "vsknn", "remind": "none"}}, "neighbours.push_reminders"),
    *((VSKNN, f"neighbours.{name}") for name in ("age_scale", "step_scale")),
    *((VSTAN, f"neighbours.{name}") for name in ("step_weight", "push_reminders")),
    ({"model": {"architecture": "slit"}}, "linear.similarity_share"),
    ({**MEMORY, "memory": {"head": "mixture"}}, "memory.head_width"),
    (MEMORY, "live.session_gap"),
    (MEMORY, "memory.network_steps"),
    (merge_sections(MEMORY_WITH_GPT2, memory={"end_to_end": True}), "memory.network_steps"),
    ({"model": {"architecture": "slis"}}, "linear.train_scale"),
    *((TRANSITIONS, f"training.{name}") for name in ("epochs", "batch_size", "precision")),
]
CHANGES = [(section, name) for section, values in OTHER.items() for name in values]


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    folder = write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)
    edit(folder / "statistics.json", lambda known: known["sessions"].update(past_max_length=5))
    return add_types(folder)


@pytest.fixture(autouse=True)
def _no_models(monkeypatch):
    """Build no models, because keys do not depend on them."""
    monkeypatch.setattr(Run, "_build", lambda _: (None, None))
    monkeypatch.setattr("dayahead.train.run.check_attention", lambda _: None)


@pytest.fixture
def copied(windows, tmp_path):
    """A copy of the windows that a test may change."""
    return Path(shutil.copytree(windows, tmp_path / "copied"))


def edit(path, change):
    """Change a JSON file."""
    value = read_json(path)
    change(value)
    write_json(path, value)


def rewrite(path, change):
    """Write a changed table in place of a table."""
    write_parquet(path, change(pq.read_table(path, partitioning=None)))


def keys_of(folder, sections=None, *, world=1, device="cpu", machine=None):
    """Keys of a study, which evaluates the test split by default."""
    sections = {"evaluation": {"split": "test"}} | (sections or {})
    process = Process(Rank(0, world), torch.device(device))
    params, store = tiny_study(folder, folder, sections).params, WindowFolder(folder)
    return CacheKeys(params, Catalogue(store, params.model), store.windows, process, machine)


def evaluations(keys):
    return tuple(keys.evaluation(index) for index in range(len(keys.windows) - 1))


def n_shared(keys, others):
    """How many fits and evaluations two runs share; checks that these are the first ones."""
    counts = []
    for pair in ((keys.fits, others.fits), (evaluations(keys), evaluations(others))):
        same = [a == b for a, b in zip(*pair, strict=False)]
        assert same == sorted(same, reverse=True)
        counts.append(sum(same))
    return tuple(counts)


def test_every_window_has_its_own_keys_and_a_second_run_the_same(windows):
    keys = keys_of(windows)
    assert len({*keys.fits, *evaluations(keys)}) == 5 + 4
    assert n_shared(keys, keys_of(windows)) == (5, 4)


@pytest.mark.parametrize(("section", "name"), CHANGES, ids=[".".join(each) for each in CHANGES])
def test_every_setting_of_a_fit_changes_all_keys(windows, section, name):
    base = NEEDED.get(f"{section}.{name}", {})
    other = merge_sections(base, **{section: {name: OTHER[section][name]}})
    assert n_shared(keys_of(windows, base), keys_of(windows, other)) == (0, 0)


@pytest.mark.parametrize("base", [TRANSITIONS, VSKNN, SLIST])
def test_targets_evaluate_baselines_again_and_fit_none(windows, base):
    other = merge_sections(base, events={"targets": ["purchase"]})
    assert n_shared(keys_of(windows, base), keys_of(windows, other)) == (5, 0)
    weighted = merge_sections(base, events={"weights": {"purchase": 2.0}})
    assert n_shared(keys_of(windows, base), keys_of(windows, weighted)) == (0, 0)


def test_types_that_the_log_has_later_change_no_key(windows, copied):
    sections = {"events": {"targets": ["purchase", "cart"], "weights": {"view": 1, "cart": 2}}}
    keys = keys_of(windows, sections)
    path = copied / "vocabulary" / "event_type.parquet"
    new = {"index": 5, "value": "wish", "first_window": "2026-01-05", "events": 1}
    rewrite(
        path, lambda table: pa.concat_tables([table, pa.Table.from_pylist([new], table.schema)])
    )
    assert n_shared(keys, keys_of(copied, sections)) == (5, 4)
    one = {"events": sections["events"] | {"targets": ["cart", "purchase"]}}
    assert n_shared(keys, keys_of(windows, one)) == (5, 4)


@pytest.mark.parametrize(("base", "setting"), WITHOUT_EFFECT)
def test_a_setting_without_effect_changes_no_key(windows, base, setting):
    section, name = setting.split(".")
    other = merge_sections(base, **{section: {name: OTHER[section][name]}})
    assert n_shared(keys_of(windows, base), keys_of(windows, other)) == (5, 4)


@pytest.mark.parametrize("name", OTHER_EVALUATION)
def test_every_setting_of_evaluation_changes_its_keys_only(windows, name):
    evaluation = {"split": "test"} | {name: OTHER_EVALUATION[name]}
    assert n_shared(keys_of(windows), keys_of(windows, {"evaluation": evaluation})) == (5, 0)


@pytest.mark.parametrize(
    "sections",
    [
        {"training": {"fit_last": False}},
        {"evaluation": {"split": "test", "cutoffs": [3]}},
    ],
)
def test_fit_last_and_cutoffs_change_no_key(windows, sections):
    assert n_shared(keys_of(windows), keys_of(windows, sections)) == (5, 4)


def test_these_tests_cover_every_setting(windows):
    study = tiny_study(windows, windows)
    for section, values in {**OTHER, "evaluation": OTHER_EVALUATION}.items():
        names = {field.name for field in fields(getattr(study.params, section))}
        assert names - set(values) <= {*IN_NO_KEY, "pretrained_items"}, section


def test_other_pretrained_items_change_the_fits_but_not_another_path(windows, tmp_path):
    fits = []
    for name, text in (("one", "some"), ("one", "others"), ("two", "others")):
        path = tmp_path / f"{name}.parquet"
        path.write_text(text)
        fits.append(keys_of(windows, {"model": {"pretrained_items": str(path)}}).fits)
    assert fits[0] != fits[1] == fits[2]


def test_train_sessions_change_the_fits_from_their_window_on(windows, copied):
    rewrite(window_path(copied, "day", day(2), "train"), lambda table: table.slice(1))
    assert n_shared(keys_of(windows), keys_of(copied)) == (2, 2)


def test_evaluated_sessions_change_the_evaluation_of_their_window_only(windows, copied):
    rewrite(window_path(copied, "day", day(2), "test"), lambda table: table.slice(1))
    for split, is_same in (("test", False), ("valid", True), ("all", False)):
        sections = {"evaluation": {"split": split}}
        before, after = keys_of(windows, sections), keys_of(copied, sections)
        assert after.fits == before.fits
        same = [a == b for a, b in zip(evaluations(before), evaluations(after), strict=True)]
        assert same == [True, is_same, True, True]


def test_a_renamed_item_changes_the_keys_from_its_first_window_on(windows, copied):
    store = WindowFolder(windows)
    row = store.n_known(ITEM_ID, store.windows[0])  # the first item that the second window adds

    def renamed(table):
        values = table[VALUE].to_pylist()
        values[row] = -1
        return table.set_column(table.column_names.index(VALUE), VALUE, [values])

    rewrite(vocabulary_path(copied, ITEM_ID), renamed)
    assert n_shared(keys_of(windows), keys_of(copied)) == (1, 1)
    # Predictions may name items that the evaluated window adds.
    lists = {"evaluation": {"split": "test", "predictions": 3}}
    assert n_shared(keys_of(windows, lists), keys_of(copied, lists)) == (1, 0)


def test_a_renamed_item_of_the_grace_changes_the_key_of_lists_that_may_name_it(windows, copied):
    store = WindowFolder(windows)
    row = store.n_known(ITEM_ID, store.windows[1]) - 1  # the last item that the second window adds

    def renamed(table, column, value):
        values = table[column].to_pylist()
        values[row] = value
        return table.set_column(table.column_names.index(column), column, [values])

    path = vocabulary_path(copied, ITEM_ID)
    in_grace = store.windows[1].name + GRACE_SUFFIX
    rewrite(path, lambda table: renamed(table, FIRST_WINDOW, in_grace))
    lists = {"evaluation": {"split": "test", "predictions": 3}}
    before, before_lists = keys_of(copied), keys_of(copied, lists)
    for keys in (before, before_lists):
        evaluations(keys)  # reads the vocabulary as it is now
    rewrite(path, lambda table: renamed(table, VALUE, -1))
    assert n_shared(before, keys_of(copied)) == (2, 2)
    assert n_shared(before_lists, keys_of(copied, lists)) == (2, 0)


@pytest.mark.parametrize(("catalogue", "shared"), [("grow", (3, 2)), ("full", (0, 0))])
def test_a_longer_log_starts_with_the_keys_of_a_shorter_one(tmp_path, catalogue, shared):
    folders = [write_window_folder(tmp_path / str(n), DAYS[:n]) for n in (3, 5)]
    shorter, longer = (keys_of(each, {"model": {"catalogue": catalogue}}) for each in folders)
    assert n_shared(shorter, longer) == shared


@pytest.mark.parametrize(
    "change",
    [
        lambda known: known["sessions"].update(max_length=10),
        lambda known: known["features"]["price"].update(columns=["other"]),
    ],
)
def test_feature_and_session_statistics_change_the_keys(windows, copied, change):
    edit(copied / "statistics.json", change)
    sections = {"model": {"features": ["price"]}}
    assert n_shared(keys_of(windows, sections), keys_of(copied, sections)) == (0, 0)


def test_features_that_the_model_does_not_use_change_no_key(windows, copied):
    edit(copied / "statistics.json", lambda known: known["features"]["price"].update(kind="hour"))
    assert n_shared(keys_of(windows), keys_of(copied)) == (5, 4)


@pytest.mark.parametrize(
    "settings",
    [{"dropout": 0.1}, {"input_dropout": 0.1}, {"config": {"attn_pdrop": 0.1, "resid_pdrop": 0}}],
)
def test_with_dropout_the_number_of_processes_changes_the_keys(windows, settings):
    assert n_shared(keys_of(windows), keys_of(windows, world=2)) == (5, 4)
    drops = {"model": settings}
    assert n_shared(keys_of(windows, drops), keys_of(windows, drops, world=2)) == (0, 0)


def test_a_given_machine_changes_the_keys(windows):
    given = [keys_of(windows, machine={"cpu": name}) for name in ("one", "other", "one")]
    assert n_shared(given[0], given[1]) == n_shared(given[0], keys_of(windows)) == (0, 0)
    assert n_shared(given[0], given[2]) == (5, 4)


def test_another_device_changes_the_keys(windows):
    assert n_shared(keys_of(windows), keys_of(windows, device="meta")) == (0, 0)


@pytest.mark.parametrize(
    ("name", "changed"),
    [("package_version", lambda _: "0"), ("source_fingerprint", lambda *rooms: "0")],
)
def test_packages_and_source_change_the_keys(windows, monkeypatch, name, changed):
    before = keys_of(windows)
    assert before.fits
    monkeypatch.setattr(cache_keys, name, changed)
    assert n_shared(before, keys_of(windows)) == (0, 0)


@pytest.mark.parametrize(("device", "n_keys"), [("cpu", 1), ("meta", 2)])
def test_on_a_cpu_the_build_of_a_version_changes_no_key(windows, monkeypatch, device, n_keys):
    def fits_with(version):
        monkeypatch.setattr(cache_keys, "package_version", lambda _: version)
        return keys_of(windows, device=device).fits

    builds = [fits_with(version) for version in ("2.13.0+cpu", "2.13.0+cu130")]
    assert len({*builds}) == n_keys
    assert fits_with("2.14.0+cpu") not in builds
