"""How much there is to do at a window, by what its cost grows with."""

from collections.abc import Sequence
from dataclasses import dataclass

from dayahead.config.baselines import MEMORY
from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID
from dayahead.train.catalogue import Catalogue
from dayahead.train.checks import fitted_windows
from dayahead.windows.folder import Window, WindowFolder

STEP = 30
"""Fixed cost of a step of the head, in examples."""


@dataclass(frozen=True)
class Work:
    """Amounts of work in fitting a window and in evaluating the model on the windows after it."""

    window: str
    n_items: int
    """Known by the model."""
    counting: int
    """Sessions fitted on."""
    steps: int
    """Of the network, with those of the first window's early network."""
    head: int
    """Examples in the steps of the head, and STEP for each of its steps."""
    examples: int
    """Examples that are read for it."""
    evaluation: int
    """Sessions evaluated."""
    other: int = 1
    """One unit per window, for what depends on none of these."""


def work_of(folder: WindowFolder, params: Params, windows: Sequence[Window], index: int) -> Work:
    """Return the work of windows[index]; the last window is followed by no evaluation."""
    training, memory = params.training, params.memory
    window = windows[index]
    fitted = fitted_windows(windows[: index + 1], training)
    n_fitted = sum(folder.n_sessions(each, "train") for each in fitted)
    is_first = index == 0 or training.starts_afresh
    has_memory = params.model.architecture == MEMORY
    has_steps = params.model.has_network and not (has_memory and memory.end_to_end)
    steps = params.network_steps(n_fitted) if has_steps else 0
    if has_memory and is_first and has_steps:
        steps += params.early_network_steps(n_fitted // 2)
    examples = _n_examples(folder, params, windows, index) if has_memory else 0
    learned = examples + (_n_replayed(folder, params, windows, index) if has_memory else 0)
    epochs = memory.first_epochs if is_first else memory.epochs
    later = windows[index + 1 : index + 1 + params.evaluation.horizon]
    return Work(
        window=window.name,
        n_items=Catalogue(folder, params.model).sizes_at(window)[ITEM_ID],
        counting=n_fitted,
        steps=steps,
        head=epochs * (learned + STEP * -(-learned // memory.batch_size_of(learned))),
        examples=examples,
        evaluation=sum(_n_evaluated(folder, params, each) for each in later),
    )


def _n_examples(folder: WindowFolder, params: Params, windows: Sequence[Window], index: int) -> int:
    """Return how many examples the head is given of a fit's own windows."""
    fitted = fitted_windows(windows[: index + 1], params.training)
    n_sessions = sum(folder.n_sessions(each, "train") for each in fitted)
    n_targets = n_events(folder, fitted) - n_sessions
    is_first = index == 0 or params.training.starts_afresh
    return min(params.memory.n_examples, n_targets // 2 if is_first else n_targets)


def _n_replayed(folder: WindowFolder, params: Params, windows: Sequence[Window], index: int) -> int:
    """Return how many examples of earlier fits it is given again."""
    n_most, n_found = params.memory.n_replayed, 0
    while index > 0 and n_found < n_most and not params.training.starts_afresh:
        index -= 1
        n_found += _n_examples(folder, params, windows, index)
    return min(n_most, n_found)


def n_events(folder: WindowFolder, windows: Sequence[Window]) -> int:
    """Count the events of windows, from their manifest."""
    kept = {each.window: each.events for each in folder.manifest.windows}
    return sum(kept[each.name] for each in windows)


def _n_evaluated(folder: WindowFolder, params: Params, window: Window) -> int:
    split = params.evaluation.split
    entry = next(each for each in folder.manifest.windows if each.window == window.name)
    n_sessions = entry.sessions if split == "all" else folder.n_sessions(window, split)
    if params.evaluation.positions == "last":
        return n_sessions
    return round(n_sessions * (entry.events / max(1, entry.sessions) - 1))
