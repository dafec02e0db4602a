"""Files that are cut off, or hold a flipped bit, a wrong number or half of what they should."""

import random
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.files import write_parquet
from faults.outcomes import ends_equal, harm, killed, refused
from support.window_folders import bytes_in

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def _fresh(project, undisturbed):
    project.forget()


@pytest.fixture
def params(project):
    """params.yaml, mended afterwards."""
    path = project.folder / "params.yaml"
    whole = path.read_bytes()
    yield path
    path.write_bytes(whole)


def test_half_a_params_yaml(project, undisturbed, params):
    whole = params.read_bytes()
    params.write_bytes(whole[: len(whole) // 2])
    refused(project.stage("train"), r"params\.yaml")
    params.write_bytes(whole)
    ends_equal(project, undisturbed)


@pytest.mark.parametrize("seed", [1, 2, 4, 5, 7, 8])
def test_a_flipped_bit_of_params_yaml(project, undisturbed, params, seed):
    """Refused, or a run with other settings, which meets nothing of ours."""
    whole = params.read_bytes()
    harm(params, seed)
    outcome = project.stage("train")
    if outcome[0] != 0:
        refused(outcome, r"params\.yaml")
    params.write_bytes(whole)
    ends_equal(project, undisturbed)


@pytest.mark.parametrize("seed", range(4))
def test_the_event_table_is_damaged(project, undisturbed, seed):
    """DVC sees it by its hash and brings it back; the stage alone sees it too, and says so."""
    raw = project.folder / "data" / "raw"
    whole = bytes_in(raw)
    harm(random.Random(seed).choice(sorted(raw.glob("events-*.parquet"))), seed)
    store = project.folder / ".dayahead" / "windows"
    aside = store.rename(store.with_name("windows-aside"))
    refused(project.stage("preprocess"), r"data/raw/.*dvc repro (-f )?download")
    aside.rename(store)
    status, said = project.run("dvc repro preprocess")
    assert status == 0, said
    assert bytes_in(raw) == whole
    ends_equal(project, undisturbed)


@pytest.mark.parametrize("seed", range(3))
def test_a_window_file_is_damaged(project, undisturbed, seed):
    """DVC sees it by its hash; the store gives the windows back."""
    windows = project.folder / "data" / "windows"
    harm(random.Random(seed).choice(sorted(windows.rglob("*.parquet"))), seed)
    status, said = project.run("dvc repro preprocess")
    assert status == 0, said
    ends_equal(project, undisturbed)


def test_a_window_file_that_is_cut_off_is_named(project, undisturbed):
    windows = project.folder / "data" / "windows"
    path = windows / "session_start_hour=2017-10-02T05-train.parquet"
    harm(path, 0)
    refused(project.stage("train"), f"{path.name}: not readable")
    assert project.run("dvc repro preprocess")[0] == 0
    ends_equal(project, undisturbed)


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_states_are_damaged(project, undisturbed, damage):
    killed(project)
    entries = (project.folder / ".dayahead" / "fits").glob("[!.]*/state.safetensors")
    states = list(entries)
    for path in states:
        held = bytearray(path.read_bytes())
        held[len(held) // 2] ^= 1
        path.write_bytes(held if damage == "flipped" else held[:-100])
    status, said = project.stage("train")
    assert status == 0
    assert said.count(": damaged (") == len(states) > 0
    ends_equal(project, undisturbed)


@pytest.mark.parametrize("seed", range(6))
def test_a_file_of_every_shelf_of_the_store_is_damaged(project, undisturbed, seed):
    """What was found out again comes to the same, and nothing of it ends in a traceback."""
    killed(project, n_measured=1)
    store = project.folder / ".dayahead"
    shelves = defaultdict(list)
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.stat().st_size and ".damaged" not in str(path):
            shelves[path.relative_to(store).parts[0]].append(path)
    dice = random.Random(seed)
    for files in shelves.values():
        harm(dice.choice(files), dice.randrange(1000))
    assert {"parts", "windows", "fits", "measures", "journal"} <= set(shelves)
    status, said = project.run("dvc repro --force")
    assert status == 0, said
    assert "Traceback" not in said
    assert project.left() == undisturbed.left
    status, said = project.run("python -m dayahead track --sync")
    assert "Traceback" not in said, said


def with_number(path, row, number):
    """Put a number into one of a window's ages."""
    table = pq.read_table(path, partitioning=None)
    field = table.schema.field("item_age")
    ages = table["item_age"].to_pylist()
    ages[row % len(ages)][0] = number
    path.unlink()
    place = table.schema.get_field_index("item_age")
    write_parquet(path, table.set_column(place, field, pa.array(ages, field.type)))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_reaches_a_window(project, number):
    """The window is named, those before it are kept, and after mending all is as it would be."""
    dice = random.Random(3)
    with project.changed("model", features=["item_age"]):
        assert project.stage("train")[0] == 0
        expected = project.left()
        project.forget()
        hour = dice.randrange(2, 9)
        name = f"session_start_hour=2017-10-02T{hour:02d}-train.parquet"
        path = project.folder / "data" / "windows" / name
        whole = path.read_bytes()
        with_number(path, dice.randrange(10**6), number)
        outcome = project.stage("train")
        refused(outcome, f"{name}: column item_age contains NaN or infinite values")
        path.write_bytes(whole)
        status, said = project.stage("train")
        assert status == 0
        assert said.count("out of the store") == hour
        assert project.left() == expected
