"""Which names `evaluation.metrics` may have; checked before anything runs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dayahead.core.plugins import GROUPS, plugins
from dayahead.core.suggestions import did_you_mean

BUILT_IN: Final = ("recall", "ndcg", "mrr")
"""Metrics that every run has."""
_TITLES: Final = {"recall": "Recall", "ndcg": "NDCG", "mrr": "MRR"}
OF_LISTS: Final = ("coverage", "gini", "novelty", "popularity", "new", "own")
"""Metrics of lists, in the order of results/lists.csv."""


def title_of(metric: str) -> str:
    """Return ndcg_at_20 as NDCG@20."""
    kind, cutoff = metric.split("_at_")
    return f"{_TITLES.get(kind, kind)}@{cutoff}"


def known_metrics(names: Sequence[str]) -> Sequence[str]:
    """Return names of metrics that installed packages declare.

    Raises:
        ValueError: there is none of a name, it is no name of a column, it is one of ours, or it is
            given twice.
    """
    for number, name in enumerate(names):
        _check(name)
        if name in names[:number]:
            raise ValueError(f"{name}: name each metric once")
    return names


def known_at_cutoff(metric: str) -> str:
    """Return a metric of targets at a cutoff, such as ndcg_at_20; ours, or one of a package.

    Raises:
        ValueError: there is no such metric.
    """
    kind, _, cutoff = metric.rpartition("_at_")
    known = (*BUILT_IN, *plugins("metric"))
    if kind not in known or not re.fullmatch("[1-9][0-9]*", cutoff):
        close = did_you_mean(kind or metric, known)
        expected = ", ".join(f"{each}_at_20" for each in known)
        raise ValueError(f"expected {expected}, or another cutoff{f' ({close})' if close else ''}")
    return metric


def packaged_metrics(settings: Mapping[str, Any]) -> Sequence[str]:
    """Return evaluation.metrics of flat settings; an older version's have none."""
    return settings.get("evaluation.metrics") or ()


def installed_metrics(runs: Iterable[Mapping[str, Any] | None]) -> list[str]:
    """Return evaluation.metrics of runs by their flat settings, of packages that are installed."""
    named = [name for settings in runs if settings for name in packaged_metrics(settings)]
    return [name for name in dict.fromkeys(named) if name in plugins("metric")]


def _check(name: str) -> None:
    if name in BUILT_IN or name in OF_LISTS:
        raise ValueError(f"{name} is one of ours, which are always there; leave it out")
    declared = plugins("metric")
    if name not in declared:
        close = did_you_mean(name, declared)
        found = f"expected one of {', '.join(declared)}" if declared else "none is installed"
        raise ValueError(
            f"{name}: no installed package declares it as an entry point of {GROUPS['metric']} "
            f"({close or found}); install the package, or leave it out"
        )
    if not re.fullmatch(r"(?!train_)[a-z][a-z0-9_]*", name) or "_at_" in name:
        raise ValueError(
            f"{name}: expected small letters, digits and _, no _at_, and no train_ in "
            f"front: {name}_at_20 names a column; rename the entry point in its package"
        )
