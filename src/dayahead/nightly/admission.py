"""Admission: which windows are a measure for later ones, and which are refused."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dayahead.config.nightly import NightlyConfig
from dayahead.nightly.drift import Drifts
from dayahead.nightly.guards import Check, data_checks
from dayahead.windows.folder import Window, WindowFolder


@dataclass(frozen=True)
class Admission:
    """What became of the windows that a night has checked."""

    checks: Sequence[Check]
    refused: Sequence[str]
    """Those of the windows checked that are refused."""
    readmitted: Sequence[str]
    """Windows refused before that are a measure again."""


def admit(
    folder: WindowFolder, windows: Sequence[Window], refused: Collection[str], config: NightlyConfig
) -> Admission:
    """Check windows, in order of time.

    A window that differs from those before it still enters the model if it is as usual beside the
    refused ones directly before it, `nightly.readmit_after` windows with itself: a change that
    lasts is the new normal. Those are readmitted with it.

    Args:
        folder: of the windows.
        windows: that are new, or refused and corrected since.
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
                found = [_excuse(check, run) for check in found]
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
    """Return the refused windows directly before one that it needs beside it; else none."""
    n = (config.readmit_after or 0) - 1
    before = folder.windows[max(0, window.position - n) : window.position] if n > 0 else ()
    is_run = len(before) == n and all(each.name in refused for each in before)
    return list(before) if is_run else []


def _excuse(check: Check, run: Sequence[Window]) -> Check:
    """Pass a check that a window has failed, since it is like the refused ones before it."""
    if check.passed:
        return check
    why = (
        f"{check.why}; but as usual beside {run[0].name} to {run[-1].name}, refused for the same: "
        f"taken as the new normal"
    )
    return replace(check, passed=True, why=why, advice="", is_excused=True)
