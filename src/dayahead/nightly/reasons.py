"""The reasons of a decision as a person reads them: one finding per guard, then what to do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from dayahead.nightly.history import Entry

WIDTH = 100
"""Columns of a line at the terminal."""
_LONG = 200
"""Characters from which the reason of data that `download` refused is cut at its semicolons."""


@dataclass(frozen=True)
class Reasons:
    """The reasons of a decision."""

    headline: str
    found: Sequence[tuple[str, str]] = ()
    """Guard and what it found, of each that refused; without a name where there are no guards."""
    advice: Sequence[str] = ()
    not_checked: Sequence[tuple[str, str]] = ()
    """Guards that were not checked, and the reason that they share."""

    @property
    def lines(self) -> Iterator[str]:
        """Yield all but the headline as lines of the terminal; last what was not checked."""
        for guard, why in self.found:
            yield from _wrapped(f"{guard}: {why}" if guard else why)
        for each in self.advice:
            yield from _wrapped(f"what to do: {each}")
        for guards, why in self.not_checked:
            yield from _wrapped(f"not checked: {guards}: {why}")


def reasons_of(entry: Entry) -> Reasons:
    """Return the reasons of an entry of the history."""
    failed = [check for check in entry.checks if not check["passed"]]
    not_checked = _not_checked(entry.checks)
    if failed:
        found = [(check["guard"], check["why"]) for check in failed]
        n, n_checked = len(failed), sum(map(is_checked, entry.checks))
        headline = f"{n} of {n_checked} guards {entry.kind} it"
        return Reasons(headline, found, advice_of(failed), not_checked)
    is_long = entry.kind == "refused" and len(entry.why) > _LONG
    first, *others = entry.why.split("; ") if is_long else [entry.why]
    return Reasons(first, [("", each) for each in others], not_checked=not_checked)


def advice_of(failed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what to do about guards that refused, each advice once."""
    given = dict.fromkeys(check["advice"] for check in failed if check.get("advice"))
    # Some advice is that of other guards with a question before it.
    return [one for one in given if not any(o != one and o.endswith(one) for o in given)]


def is_checked(check: Mapping[str, Any]) -> bool:
    """Return whether a guard was checked; those of older histories all were."""
    return bool(check.get("checked", True))


def passed_of(checks: Sequence[Mapping[str, Any]]) -> str:
    """Return how many guards passed, of a decision that no guard refused, and were not checked."""
    n = sum(map(is_checked, checks))
    if n == len(checks):
        return f"all {n} guards passed"
    return f"{n} guards passed, {len(checks) - n} not checked"


def _not_checked(checks: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the names of guards that were not checked, those of one reason together."""
    names: dict[str, list[str]] = {}
    for check in checks:
        if not is_checked(check):
            names.setdefault(check["why"], []).append(check["guard"])
    return [(", ".join(each), why) for why, each in names.items()]


def _wrapped(text: str) -> list[str]:
    return wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
