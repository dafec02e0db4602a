"""The loss within a fit: by hand, and as a whole the fit's mean."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.outputs.examples import read_examples
from dayahead.outputs.losses import read_losses
from dayahead.outputs.tables import read_ranks, read_windows
from dayahead.train.loss_curve import N_PARTS, loss_curve
from support.tiny_settings import train_study
from support.window_folders import markov_days, write_window_folder


def test_few_steps_are_points_of_their_own():
    assert loss_curve(torch.tensor([[6.0, 3], [8, 2], [1, 4]])) == ((1, 2.0), (2, 4.0), (3, 0.25))
    assert loss_curve(torch.zeros(0, 2)) == ()


def test_many_steps_are_joined_by_targets():
    sums = torch.tensor([[2.0, 1], [1, 3]]).repeat(N_PARTS, 1)
    assert loss_curve(sums) == tuple((2 * part, 0.75) for part in range(1, N_PARTS + 1))


def test_steps_without_targets_have_no_loss():
    assert loss_curve(torch.tensor([[0.0, 0], [3, 2]])) == ((2, 1.5),)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=70))
def test_the_points_cover_every_step_once(counts):
    sums = torch.tensor([[2.0 * n, n] for n in counts])
    steps = [step for step, _ in loss_curve(sums)]
    assert steps[-1] == len(counts)
    assert steps == sorted(set(steps))
    assert len(steps) == min(N_PARTS, len(counts))


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), markov_days(4, 30, 15))


def test_a_run_records_losses_and_examples(windows, tmp_path):
    train_study(windows, tmp_path, {"model": {"architecture": "gru"}})
    results = tmp_path / "results"
    rows = read_windows(results / "windows.csv", [1, 5])
    losses = read_losses(results)
    assert list(losses) == [row.window for row in rows]
    for row in rows:  # the mean lies among the points, which have as many targets, or nearly so
        values = [loss for _, loss in losses[row.window]]
        assert min(values) <= row.train_loss <= max(values)
    examples = read_examples(results, rows[-1].window)
    assert [example.row for example in examples] == sorted({example.row for example in examples})
    assert len(examples) == 8
    assert all(len(set(example.recommended)) == 10 for example in examples)


def test_examples_are_those_of_the_evaluation(windows, tmp_path):
    """A target that is recommended at place r has the rank r."""
    train_study(windows, tmp_path, {"model": {"architecture": "transitions"}})
    window = max(path.stem for path in (tmp_path / "results" / "ranks").iterdir())
    examples = read_examples(tmp_path / "results", window)
    ranks = read_ranks(tmp_path / "results", window)
    n_found = 0
    for example in examples:
        target, rank = ranks.targets[example.row], ranks.ranks[example.row]
        if target in example.recommended:
            n_found += 1
            assert example.recommended.index(target) < rank  # ties count against the model
    assert n_found
