"""Large losses of rows or events, as lines for the terminal."""

from collections.abc import Iterator, Mapping

LARGE = 0.1
"""Share of rows or events above which a loss is reported."""


def large_losses(stage: str, unit: str, total: int, losses: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each cause that drops more than a tenth of everything.

    Args:
        stage: the stage that drops them, at the beginning of each line.
        unit: what is counted: rows or events.
        total: number of all of them.
        losses: number of those dropped, by cause with the name of its setting.
    """
    for cause, found in losses.items():
        if found > LARGE * total:
            share = f"{100 * found / total:.0f} %"
            yield f"{stage}: {share} of the {unit} ({found:,}) were dropped by {cause}"
