"""Warnings about events of items that the table of items lacks, or lists too late."""

import logging

import numpy as np
import pyarrow as pa

from dayahead.core.columns import EVENTS, FIRST_TIME, ITEM_ID, VALUE
from dayahead.dataset.losses import LARGE
from dayahead.features.arrays import Flags, codes_of, first_of_each, ints
from dayahead.features.vocabulary import KnownValues
from dayahead.preprocess.items import ItemsByWindow

_LACKS = (
    "items that the table of items lacks, such as %s; compare items.item_id with columns.item_id"
)
_IS_LATE = (
    "items whose first row in the table of items holds only after the window of their first click, "
    "such as %s; their features are null until then. If items.time says when the table was "
    "written, leave it out"
)
_TRIED = 1_000
"""Number of items of which another spelling is looked for."""
_log = logging.getLogger(__name__)


def warn_of_unlisted(known: ItemsByWindow, vocabulary: pa.Table) -> None:
    """Log a line if more than a tenth of the events are of items without a row in time.

    Args:
        known: the table of items.
        vocabulary: of the items, with their events in the kept windows.
    """
    ids = known.rows.table[ITEM_ID]
    rows = KnownValues(ids.combine_chunks().unique()).positions(vocabulary[VALUE].combine_chunks())
    first = np.append(known.positions[first_of_each(codes_of(ids))], -1)[rows]
    clicked = np.searchsorted(known.ends, ints(vocabulary[FIRST_TIME]), side="right")
    for message, flags in ((_LACKS, rows < 0), (_IS_LATE, first > clicked)):
        share, shown = _share(vocabulary, flags)
        if share > LARGE:
            items = vocabulary[VALUE].filter(pa.array(flags)).slice(0, _TRIED).to_pylist()
            example = _spelled(items, ids) if message is _LACKS else repr(items[0])
            _log.warning(f"preprocess: %s are of {message}", shown, example)


def _share(vocabulary: pa.Table, flags: Flags) -> tuple[float, str]:
    events = vocabulary[EVENTS].to_numpy()
    n = int(events[flags].sum())
    share = n / max(1, events.sum())
    return share, f"{100 * share:.0f} % of the events ({n:,})"


def _spelled(items: list[int | str], ids: pa.ChunkedArray) -> str:
    """Return the first item that the table has in another spelling (17, 017), else the first."""
    listed = {_plain(each): each for each in ids.unique().to_pylist()}
    for item in items:
        if (other := listed.get(_plain(item))) is not None:
            return f"{item!r}, which is {other!r} there"
    return repr(items[0])


def _plain(item: int | str) -> str:
    return str(item).strip().casefold().removesuffix(".0").lstrip("0")
