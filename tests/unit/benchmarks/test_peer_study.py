"""What the peers' programs share: batches, learning rates, scores in a file."""

from itertools import chain

import numpy as np
import pytest
import torch

from peer_study import PeerModel, Study, read_sessions

SESSIONS = [[0, 1, 2], [3, 4], [5, 6, 7, 8], [1, 1], [2, 0]]
GIVEN = {"batch_size": 2, "learning_rate": 0.5, "schedule": "linear", "max_grad_norm": None}


class Recorder(PeerModel):
    """Has one weight, whose loss is its product with the number of items of a batch."""

    def __init__(self):
        self.module = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.module.weight)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.5)
        self.batches, self.rates, self.modes = [], [], []

    def loss(self, sessions):
        self.batches.append([each.tolist() for each in sessions])
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        self.modes.append(self.module.training)
        return self.module.weight.sum() * sum(map(len, sessions))

    def scores(self, sessions):
        self.modes.append(self.module.training)
        return torch.tensor([[len(each), int(each[-1])] for each in sessions], dtype=torch.float64)


@pytest.fixture
def path(tmp_path):
    """A file with SESSIONS."""
    file = tmp_path / "sessions.npz"
    offsets = np.cumsum([0, *map(len, SESSIONS)])
    np.savez(file, items=np.concatenate(SESSIONS), offsets=offsets)
    return str(file)


def test_sessions_are_read_as_they_were_written(path):
    assert [each.tolist() for each in read_sessions(path)] == SESSIONS


def test_each_epoch_has_every_session_once_and_rates_fall_over_all_epochs(path):
    model = Recorder()
    n_sessions, loss = Study(model, GIVEN).fit(path, epochs=2)
    assert n_sessions == 10
    assert [len(batch) for batch in model.batches] == [2, 2, 1, 2, 2, 1]
    for epoch in (model.batches[:3], model.batches[3:]):
        assert sorted(chain.from_iterable(epoch)) == sorted(SESSIONS)
    assert model.rates == pytest.approx([0.5 * (1 - step / 6) for step in range(6)])
    assert model.modes == [True] * 6
    # Each step lowers the weight by the rate times the items of the batch.
    sizes = [sum(map(len, batch)) for batch in model.batches]
    weight = -sum(rate * size for rate, size in zip(model.rates, sizes, strict=True))
    assert model.module.weight.item() == pytest.approx(weight)
    assert loss < 0


def test_rates_start_again_with_each_fit_or_stay(path):
    falling, constant = Recorder(), Recorder()
    for model, schedule in ((falling, "linear"), (constant, "constant")):
        study = Study(model, GIVEN | {"schedule": schedule})
        study.fit(path, epochs=1)
        study.fit(path, epochs=1)
    assert falling.rates[:3] == falling.rates[3:] == pytest.approx([0.5, 1 / 3, 1 / 6])
    assert constant.rates == [0.5] * 6


def test_gradients_are_limited_where_there_is_a_limit(path):
    model = Recorder()
    Study(model, GIVEN | {"schedule": "constant", "max_grad_norm": 1.0}).fit(path, epochs=1)
    assert model.module.weight.item() == pytest.approx(-3 * 0.5, abs=1e-4)


def test_a_turn_of_training_has_so_many_steps_at_most(path):
    model = Recorder()
    given = GIVEN | {"sessions": path, "most_steps": 2}
    assert Study(model, given).train()[0] == 4
    assert Study(model, given | {"most_steps": None}).train()[0] == 5


def test_scores_are_those_of_evaluation_in_the_order_of_the_sessions(path, tmp_path):
    model, scores = Recorder(), tmp_path / "scores.npy"
    assert Study(model, GIVEN).score(path, str(scores)) == (5, 0.0)
    written = np.load(scores)
    assert written.dtype == np.float32
    assert written.tolist() == [[len(each), each[-1]] for each in SESSIONS]
    assert model.modes == [False]
