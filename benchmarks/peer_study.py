"""What the peers' sides of `peers.py` share; runs in their environments, which all have torch."""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from worker import answer_requests, settings


class PeerStudy(Protocol):
    """Training and evaluation; each returns its sessions, and its loss or recall@20."""

    def fit(self) -> tuple[int, float]: ...  # noqa: D102

    def evaluate(self) -> tuple[int, float]: ...  # noqa: D102


def run_peer(build: Callable[[dict[str, Any]], PeerStudy]) -> None:
    """Build a peer's study from the settings given, and train and evaluate on request."""
    given = settings()
    torch.set_num_threads(given["threads"])
    torch.manual_seed(1)
    study = build(given)
    answer_requests({"training": study.fit, "evaluation": study.evaluate})
