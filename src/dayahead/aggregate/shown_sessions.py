"""A few sessions of the newest window with what the model recommends, by title or id."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dayahead.aggregate.targets import clicks_before
from dayahead.core.columns import ITEM_ID, N_RESERVED, VALUE
from dayahead.core.errors import DataError
from dayahead.outputs.examples import Example
from dayahead.outputs.tables import WindowRanks
from dayahead.windows.folder import Role, Window, WindowFolder

_N_SHOWN: Final = 6
"""Maximum number of items shown before a session's target."""


@dataclass(frozen=True)
class ShownItem:
    """An item on the page."""

    name: str
    """Title, or raw id."""
    is_target: bool = False
    is_known: bool = False
    """Whether it is in the session already."""


@dataclass(frozen=True)
class ShownSession:
    """A session, its target and the model's list."""

    n_hidden: int
    """Number of earlier items that are not shown."""
    items: Sequence[ShownItem]
    target: ShownItem
    rank: int
    """Rank of the target; 0: it was no candidate."""
    recommended: Sequence[ShownItem]


def shown_sessions(
    folder: WindowFolder,
    window: Window,
    split: Role,
    ranks: WindowRanks,
    examples: Sequence[Example],
) -> list[ShownSession]:
    """Return the examples of a window, whose ranks are given; `split` is evaluation.split.

    Raises:
        DataError: an example is not of a session of the window, or has an unknown item.
    """
    before = clicks_before(folder, window, split, ranks)
    sessions = before.table[ITEM_ID]
    last = {row: index for index, row in enumerate(before.rows.tolist())}  # target of each session
    n_items = N_RESERVED + len(folder.vocabulary(ITEM_ID))
    if any(
        example.row not in last or not all(0 <= item < n_items for item in example.recommended)
        for example in examples
    ):
        raise DataError(
            f"results/examples.json: expected rows of {len(last)} sessions and catalogue "
            f"indices below {n_items}, found others; run `dvc repro -f train`"
        )
    items = {example.row: sessions[example.row].as_py() for example in examples}
    shown = {item for example in examples for item in (*items[example.row], *example.recommended)}
    names = item_names(folder, window, shown)

    def show(example: Example) -> ShownSession:
        index = last[example.row]
        *known, target = items[example.row][: before.n_before[index] + 1]
        return ShownSession(
            n_hidden=max(0, len(known) - _N_SHOWN),
            items=[ShownItem(names[item]) for item in known[-_N_SHOWN:]],
            target=ShownItem(names[target], is_target=True),
            rank=int(ranks.ranks[index]),
            recommended=[
                ShownItem(names[item], is_target=item == target, is_known=item in known)
                for item in example.recommended
            ],
        )

    return [show(example) for example in examples]


def item_names(folder: WindowFolder, newest: Window, items: Iterable[int]) -> dict[int, str]:
    """Return the titles of items by catalogue index; raw ids where there is no title.

    An item's title is taken from the newest window that has it, and there from the last session
    with a title.
    """
    wanted = sorted(items)
    raw = folder.vocabulary(ITEM_ID)[VALUE]
    names = {item: str(raw[item - N_RESERVED]) if item >= N_RESERVED else "?" for item in wanted}
    title = folder.statistics.title
    if title is None:
        return names
    values, missing = folder.vocabulary(title)[VALUE], {i for i in wanted if i >= N_RESERVED}
    for window in reversed(folder.windows[: newest.position + 1]):
        if not missing:
            break
        table = folder.read(window, "all", [ITEM_ID, title])
        events = pa.table(
            [column.combine_chunks().flatten() for column in table.columns], ["item", "title"]
        )
        events = events.filter(pc.is_in(events["item"], pa.array(sorted(missing), pa.int32())))
        found, titles = (column.to_pylist() for column in events.columns)
        names |= {
            item: str(values[index - N_RESERVED])
            for item, index in zip(found, titles, strict=True)
            if index >= N_RESERVED
        }
        missing -= {*found}
    return names
