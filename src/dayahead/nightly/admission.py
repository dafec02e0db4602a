"""Admission: which windows serve as a reference for later ones, and which are refused."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dayahead.config.nightly import NightlyConfig
from dayahead.nightly.drift import Drifts
from dayahead.nightly.guards import Check, data_checks
from dayahead.windows.folder import Window, WindowFolder


@dataclass(frozen=True)
class Admission:
    """Result for the windows that a night has checked."""

    checks: Sequence[Check]
    refused: Sequence[str]
    """The checked windows that are refused."""
    readmitted: Sequence[str]
    """Windows refused before that serve as a reference again."""


def admit(
    folder: WindowFolder, windows: Sequence[Window], refused: Collection[str], config: NightlyConfig
) -> Admission:
    """Check windows, in order of time.

    A window that differs from those before it is still accepted if it resembles the refused windows
    directly before it, together `nightly.readmit_after` windows: a lasting change is the new
    normal. Those windows are then readmitted.

    Args:
        folder: folder of the windows.
        windows: windows that are new, or were refused and have been corrected since.
        refused: windows refused before; those of `windows` are decided again.
        config: the limits.
    """
    checks: list[Check] = []
    names = [window.name for window in windows]
    left_out = set(refused) - set(names)
    readmitted: set[str] = set()
    for window in windows:
        drifts = Drifts(folder, left_out, config.windows)
        found = data_checks(drifts.of(window), window.name, config)
        if not all(check.passed for check in found):
            run = _refused_before(folder, window, left_out, config)
            beside = data_checks(drifts.of(window, run), window.name, config) if run else found
            if all(check.passed for check in beside):
                why = (
                    f"but as usual beside {run[0].name} to {run[-1].name}, refused for the same: "
                    f"taken as the new normal"
                )
                found = [check.excused(why) for check in found]
                readmitted |= {each.name for each in run}
                left_out -= readmitted
            else:
                left_out.add(window.name)
        checks += found
    again = [name for name in names if name in refused and name not in left_out]
    return Admission(
        checks,
        refused=[name for name in names if name in left_out],
        readmitted=sorted((readmitted & set(refused)) | set(again)),
    )


def _refused_before(
    folder: WindowFolder, window: Window, refused: Collection[str], config: NightlyConfig
) -> list[Window]:
    """Return the refused windows directly before one, if there are enough to readmit it."""
    n = (config.readmit_after or 0) - 1
    before = folder.windows[max(0, window.position - n) : window.position] if n > 0 else ()
    is_run = len(before) == n and all(each.name in refused for each in before)
    return list(before) if is_run else []
