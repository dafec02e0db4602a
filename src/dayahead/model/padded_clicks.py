"""Clicks of padded sessions, as the memories read them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from dayahead.core.columns import EVENT_TIME, IS_PAST, IS_TARGET, ITEM_ID, WORTH
from dayahead.core.ragged import offsets_of
from dayahead.memory.clicks import Clicks
from dayahead.model.output_layer import Columns
from dayahead.model.tasks import is_before


def clicks_of(columns: Columns, lengths: Int[Tensor, " B"], categories: Sequence[str]) -> Clicks:
    """Return the events of padded sessions row after row; the user's past is kept apart.

    `categories` are the names of the categorical columns that are read.
    """
    is_event = is_before(lengths, columns[ITEM_ID]).cpu()
    if IS_PAST not in columns:
        return _rows(columns, is_event, categories)
    is_past = columns[IS_PAST].cpu() == 1
    past = _rows(columns, is_event & is_past, categories)
    return replace(_rows(columns, is_event & ~is_past, categories), past=past)


def _rows(columns: Columns, is_chosen: Bool[Tensor, "B L"], categories: Sequence[str]) -> Clicks:
    """Return the chosen events of padded sessions row after row."""
    items, times, *read = (
        columns[name].cpu()[is_chosen].numpy() for name in (ITEM_ID, EVENT_TIME, *categories)
    )
    values = np.array(read, np.int64).reshape(len(read), len(items)).T
    worth, is_target = (
        columns[name].cpu()[is_chosen].numpy() if name in columns else None
        for name in (WORTH, IS_TARGET)
    )
    return Clicks(
        items,
        times,
        values,
        offsets_of(is_chosen.sum(1).numpy()),
        worth=None if worth is None else worth.astype(np.float64),
        is_target=None if is_target is None else is_target == 1,
    )
