"""The benchmark of a GPU's step runs on a CPU, and its table is the one in the documentation."""

import re
from pathlib import Path

import pytest
import torch

import gpu
from gpu import SIZES, TINY, Sizes, floors, table_of

SCALING = Path(__file__).parents[3] / "docs" / "scaling.md"


@pytest.fixture
def threads():
    """The number of threads as before, which a run sets."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_tiny_step_is_measured_part_by_part(tmp_path, monkeypatch, threads):
    monkeypatch.setattr(gpu, "ROUNDS", 1)
    gpu.main(["--device", "cpu", "--tiny", "--out", str(tmp_path / "build" / "gpu.md")])
    _, _, *rows = (tmp_path / "build" / "gpu.md").read_text().splitlines()
    assert [row.split(" | ")[0] for row in rows] == [
        "| softmax",
        "| body",
        "| optimizer",
        "| whole step",
    ]
    assert all(re.search(r"\| \d+\.\d \|$", row) for row in rows)


def test_the_documented_floors_are_the_benchmark_s():
    found = SCALING.read_text(encoding="utf-8")
    rows = [line.rpartition("|")[0] for line in found.splitlines()]  # without the last column
    documented = [row.rpartition("|")[0] for row in rows]
    for line in table_of(SIZES).splitlines():
        assert line.rpartition("|")[0].rpartition("|")[0] in documented


def test_floors_grow_with_what_they_count():
    more_items = floors(Sizes(**vars(TINY) | {"n_items": 2 * TINY.n_items}))
    assert more_items["softmax"] == tuple(2 * n for n in floors(TINY)["softmax"])
    assert more_items["body"] == floors(TINY)["body"]


def test_without_a_gpu_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"error: torch .* sees no GPU here; nothing was run"):
        gpu.main([])
    assert capsys.readouterr().out == ""
