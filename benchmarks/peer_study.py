"""What the peers' programs share; runs in their environments, which all have torch and numpy."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from worker import answer_requests, settings

Sessions = list[Tensor]
"""Items of each session, int64 numbers from 0."""


class PeerModel(ABC):
    """A library's model, which holds all items from the start.

    Args:
        given: settings of `shared_settings` of `peers.py` or `peer_accuracy.py`.
    """

    module: nn.Module
    optimizer: torch.optim.Optimizer

    @abstractmethod
    def loss(self, sessions: Sessions) -> Tensor:
        """Return the library's loss of a batch in training."""

    @abstractmethod
    def scores(self, sessions: Sessions) -> Tensor:
        """Return the library's scores of what follows sessions, [S, n_items]."""

    def recall(self, sessions: Sessions) -> float:
        """Return recall@20 of the sessions' last items, by the library's own evaluation."""
        raise NotImplementedError


class Study:
    """Training of a model, further and further, and its scores."""

    def __init__(self, model: PeerModel, given: dict[str, Any]) -> None:
        self.model = model
        self.given = given

    @cached_property
    def sessions(self) -> Sessions:
        """Those of the settings."""
        return read_sessions(self.given["sessions"])

    def train(self) -> tuple[int, float]:
        """Train for an epoch on the sessions of the settings, or for a part of it."""
        return self._train(islice(self._epoch(self.sessions), self.given["most_steps"]))

    def evaluate(self) -> tuple[int, float]:
        """Return the sessions of the settings, and their recall@20."""
        return len(self.sessions), self.model.recall(self.sessions)

    def fit(self, sessions: str, epochs: int) -> tuple[int, float]:
        """Train on the sessions of a file; return them, over all epochs, and the mean loss."""
        read = read_sessions(sessions)
        batches = list(chain.from_iterable(self._epoch(read) for _ in range(epochs)))
        return self._train(self._scheduled(batches))

    def score(self, sessions: str, scores: str) -> tuple[int, float]:
        """Write the scores of what follows the sessions of a file, float32 [S, n_items]."""
        read = read_sessions(sessions)
        self.model.module.eval()
        with torch.no_grad():
            np.save(scores, self.model.scores(read).float().numpy())
        return len(read), 0.0

    def _epoch(self, sessions: Sessions) -> Iterator[Sessions]:
        """Yield batches of all sessions in a random order."""
        for rows in torch.randperm(len(sessions)).split(self.given["batch_size"]):
            yield [sessions[row] for row in rows]

    def _scheduled(self, batches: list[Sessions]) -> Iterator[Sessions]:
        """Yield the batches; where it is to fall, the learning rate falls to 0 over them."""
        for step, batch in enumerate(batches):
            share = 1 - step / len(batches) if self.given["schedule"] == "linear" else 1.0
            for group in self.model.optimizer.param_groups:
                group["lr"] = share * self.given["learning_rate"]
            yield batch

    def _train(self, batches: Iterator[Sessions]) -> tuple[int, float]:
        model, largest = self.model, self.given["max_grad_norm"]
        model.module.train()
        losses, n_sessions = [], 0
        for batch in batches:
            loss = model.loss(batch)
            model.optimizer.zero_grad()
            loss.backward()
            if largest is not None:
                clip_grad_norm_(model.module.parameters(), largest)
            model.optimizer.step()
            losses.append(loss.item())
            n_sessions += len(batch)
        return n_sessions, float(np.mean(losses))


def read_sessions(path: str) -> Sessions:
    """Read the sessions that another program has written."""
    stored = np.load(path)
    lengths = np.diff(stored["offsets"]).tolist()
    return list(torch.from_numpy(stored["items"]).long().split(lengths))


def run_peer(build: Callable[[dict[str, Any]], PeerModel]) -> None:
    """Build a peer's model from the settings given, and train, evaluate and score on request."""
    given = settings()
    torch.set_num_threads(given["threads"])
    torch.manual_seed(given["seed"])
    np.random.seed(given["seed"])  # the libraries draw from it
    study = Study(build(given), given)
    answer_requests(
        {
            "training": study.train,
            "evaluation": study.evaluate,
            "fit": study.fit,
            "score": study.score,
        }
    )
