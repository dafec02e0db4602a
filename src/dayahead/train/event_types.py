"""What events count for by their type: which are targets, and their worth (section `events`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from dayahead.config.events import EventsConfig
from dayahead.core.columns import (
    EVENT_TYPE,
    IS_TARGET,
    ITEM_ID,
    N_RESERVED,
    PAST_PREFIX,
    VALUE,
    WORTH,
)
from dayahead.core.errors import ConfigError
from dayahead.core.ragged import row_of_each, step_of_each
from dayahead.core.suggestions import did_you_mean
from dayahead.train.batches import Sessions
from dayahead.windows.folder import WindowFolder


@dataclass(frozen=True)
class Targets:
    """What is predicted of S sessions: their last events that are targets."""

    counts: NDArray[np.int64]
    """[S] number of targets of each session."""
    steps: NDArray[np.int64] | None
    """[T] position of each target in its session; None: each session's last item."""


@dataclass(frozen=True)
class EventTypes:
    """The types that settings name, by their indices in the vocabulary of the windows."""

    is_target: NDArray[np.bool_] | None
    """[n] by index; None: events of all types."""
    worth: NDArray[np.float32] | None
    """[n] by index; None: every event counts 1."""

    @classmethod
    def of(cls, folder: WindowFolder, config: EventsConfig) -> "EventTypes":
        """Look up the types of the settings.

        Raises:
            ConfigError: the windows have no types, or not one that is named.
        """
        if not config.named:
            return cls(None, None)
        if folder.statistics.event_type is None:
            raise ConfigError(
                "params.yaml: events: the windows have no types of events; name their column in "
                "columns.event_type of the data set's file, or set events.targets and "
                "events.weights to null"
            )
        known = [str(value) for value in folder.vocabulary(EVENT_TYPE)[VALUE].to_pylist()]
        for name, given in (("targets", config.targets), ("weights", config.weights)):
            _check_types(name, [*(given or ())], known)
        is_target = [False] * N_RESERVED + [each in (config.targets or ()) for each in known]
        weights = config.weights or {}
        worth = [1.0] * N_RESERVED + [weights.get(each, 1.0) for each in known]
        return cls(
            None if config.targets is None else np.array(is_target),
            None if config.weights is None else np.array(worth, np.float32),
        )

    @property
    def names_types(self) -> bool:
        """Whether the types of events are read."""
        return self.is_target is not None or self.worth is not None

    def columns(self, read: Sequence[str], *, with_past: bool) -> list[str]:
        """Return the columns of a window file to read for a model that reads some of them."""
        types = [EVENT_TYPE] if self.names_types else []
        types += [PAST_PREFIX + name for name in types if with_past]
        return list(dict.fromkeys([*read, *types]))

    def mark(self, sessions: Sessions, read: Sequence[str]) -> Sessions:
        """Return sessions with what their events count for, and else the columns `read`."""
        if not self.names_types:
            return sessions
        types = sessions.columns[EVENT_TYPE]
        marks: dict[str, Tensor] = {}
        if self.is_target is not None:
            marks[IS_TARGET] = torch.from_numpy(self.is_target)[types].long()
        if self.worth is not None:
            marks[WORTH] = torch.from_numpy(self.worth)[types]
        own = {
            name: each
            for name, each in sessions.columns.items()
            if name != EVENT_TYPE or name in read
        }
        return replace(sessions, columns=own | marks)

    def columns_of_targets(self, positions: Literal["last", "all"]) -> list[str]:
        """Return the columns that `targets_in` needs."""
        items = [ITEM_ID] if positions == "all" else []
        return items if self.is_target is None else [EVENT_TYPE]

    def targets_in(self, sessions: pa.Table, positions: Literal["last", "all"]) -> Targets:
        """Return the targets of sessions: never a session's first event."""
        if self.is_target is None:
            if positions == "last":
                return Targets(np.ones(len(sessions), np.int64), None)
            counts = pc.list_value_length(sessions[ITEM_ID]).to_numpy().astype(np.int64) - 1
            return Targets(counts, step_of_each(counts) + 1)
        lengths = pc.list_value_length(sessions[EVENT_TYPE]).to_numpy().astype(np.int64)
        rows, steps = row_of_each(lengths), step_of_each(lengths)
        types = pc.list_flatten(sessions[EVENT_TYPE]).to_numpy()
        [found] = (self.is_target[types] & (steps > 0)).nonzero()
        if positions == "last":
            found = found[np.append(np.diff(rows[found]) != 0, True)[: len(found)]]
        return Targets(np.bincount(rows[found], minlength=len(lengths)), steps[found])

    def fingerprint(self) -> Mapping[str, Any]:
        """Return which indices are targets and what each counts, for keys of a cache.

        Only those that settings name: new types of a longer log change no key.
        """
        targets = None if self.is_target is None else self.is_target.nonzero()[0].tolist()
        if self.worth is None:
            return {"targets": targets, "weights": None}
        [named] = (self.worth != 1).nonzero()
        weights = dict(zip(named.tolist(), self.worth[named].tolist(), strict=True))
        return {"targets": targets, "weights": sorted(weights.items())}


def _check_types(setting: str, given: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known)
        raise ConfigError(
            f"params.yaml: events.{setting}: {', '.join(unknown)}: no type of the data's events, "
            f"which are {', '.join(known)}{f'; {hint}' if hint else ''}"
        )
