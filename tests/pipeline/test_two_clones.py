"""Two people share a remote: the second clone repeats nothing, and fits only what is new."""

import re
import shutil

import pytest

from support.shop_project import SETTINGS, Clone, make_shop, write_log

pytestmark = pytest.mark.slow
N_DAYS = 5
"""Of the first log; its last day is open."""


@pytest.fixture(scope="module")
def clones(tmp_path_factory):
    """The first clone, which has run and pushed; the second, just cloned; the file of a new day."""
    folder = tmp_path_factory.mktemp("clones")
    logs = folder / "logs"
    logs.mkdir()
    *_, new = write_log(logs, N_DAYS + 1)
    shutil.move(new, folder / new.name)
    first, second = Clone(folder / "first", logs), Clone(folder / "second", logs)
    make_shop(first, SETTINGS)
    first.run(f"dvc remote add -q -d store {folder / 'store'}")
    first.run("dvc repro -q")
    first.run("git add .")
    first.run("git commit -qm all")
    first.run("dvc push -q --run-cache")
    assert "all" in first.run("python -m dayahead cache push")
    first.run(f"git clone -q {first.folder} {second.folder}")
    return first, second, folder / new.name


def test_the_second_clone_trains_nothing_and_then_the_new_window_alone(clones):
    first, second, new = clones
    second.run("dvc pull -q --run-cache")
    assert second.outputs() == first.outputs()
    pulled = second.run("python -m dayahead cache pull")
    assert re.search(r"^fits +4 ", pulled, re.M), pulled
    again = second.run("python -m dayahead cache pull")
    assert re.search(r"^all +0 +0 +0\.0 +\d+$", again, re.M), again
    output = second.run("dvc repro")
    assert "Running stage" not in output
    shutil.copy(new, second.environment["SHOP"])
    before = second.n_cached("evaluations")
    output = second.run("dvc repro -f download") + second.run("dvc repro")
    assert output.count("(cached)") == N_DAYS, output
    assert "preprocess: 4 closed windows reused" in output
    assert "fit 2026-01-04: from the cache" in output
    evaluated = re.findall(r"window \d.*?: (\S+) ndcg.*?(, from the cache)?$", output, re.M)
    new_windows = [window for window, cached in evaluated if not cached]
    assert new_windows == ["2026-01-05"]
    assert second.n_cached("evaluations") == before + 4
    first.run("dvc repro -q -f download")
    first.run("dvc repro -q")
    assert second.outputs() == first.outputs()
    sent = second.run("python -m dayahead cache push")
    assert re.search(r"^evaluations +4 +\d+ +[\d.]+ +12$", sent, re.M), sent
