"""The reasons of a decision as a person reads them: one finding per guard, then what to do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

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

    @property
    def lines(self) -> Iterator[str]:
        """Yield all but the headline as lines of the terminal."""
        for guard, why in self.found:
            yield from _wrapped(f"{guard}: {why}" if guard else why)
        for each in self.advice:
            yield from _wrapped(f"what to do: {each}")


def reasons_of(entry: Entry) -> Reasons:
    """Return the reasons of an entry of the history."""
    failed = [check for check in entry.checks if not check["passed"]]
    if failed:
        found = [(check["guard"], check["why"]) for check in failed]
        given = dict.fromkeys(check["advice"] for check in failed if check.get("advice"))
        # Some advice is that of other guards with a question before it.
        advice = [one for one in given if not any(o != one and o.endswith(one) for o in given)]
        n, n_all = len(failed), len(entry.checks)
        return Reasons(f"{n} of {n_all} guards {entry.kind} it", found, advice)
    is_long = entry.kind == "refused" and len(entry.why) > _LONG
    first, *others = entry.why.split("; ") if is_long else [entry.why]
    return Reasons(first, [("", each) for each in others])


def _wrapped(text: str) -> list[str]:
    return wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
