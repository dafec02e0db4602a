"""Plain names of the features of evidence: evidence.csv and programs have those of `memory/`."""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

_NAMES: Final = {
    "pair.next": "often clicked right after",
    "pair.first": "often clicked right after a session's first click",
    "pair.end": "often clicked right after, as a session's last click",
    "pair.forward": "often clicked later in a session",
    "pair.backward": "often clicked earlier in a session",
    "neighbours.items": "in similar sessions",
    "neighbours.sharp": "in the most similar sessions",
    "item.clicks": "popular",
    "item.later": "popular after the first click",
    "item.end": "popular as the last click",
    "item.age": "time since its first click",
    "item.unseen": "time since its last click",
    "own.is_known": "in the session already",
    "own.position": "clicked lately in the session",
    "own.is_last": "the session's last click",
    "past.is_known": "in the user's past",
    "past.position": "clicked lately in the user's past",
    "past.is_last": "the last click of the user's past",
    "past.next": "often clicked after the user's past",
    "network.log_softmax": "the network's score",
    "network.is_new": "new since the last fit",
}
_OF_COLUMNS: Final = (
    (re.compile(r"category\.clicks\.(.+)"), "popular after this {}"),
    (re.compile(r"category\.next\.(.+)"), "often clicked right after, at this {}"),
    (re.compile(r"attribute\.(.+)\.last"), "same {} as the last click"),
    (re.compile(r"attribute\.(.+)\.share"), "same {} as the session's clicks"),
    (re.compile(r"content\.(.+)\.last"), "{} like that of the last click"),
    (re.compile(r"content\.(.+)\.mean"), "{} like those of the session's clicks"),
    (re.compile(r"content\.(.+)\.new"), "not clicked yet, with a {} like that of the last click"),
)
_HALF_LIFE: Final = re.compile(r"(.+?)\.(\d[\d.]*(?:e[+-]\d+)?)([a-z]*)")
"""Name of a feature that is counted with a half-life: 4, 0.25 or 15min."""


def plain_name(feature: str) -> str:
    """Return the name for people of pair.next.4: often clicked right after (half-life 4 windows).

    Features that other packages add keep theirs.
    """
    found = _HALF_LIFE.fullmatch(feature)
    if found is None or _base(found[1]) is None:
        return _base(feature) or feature
    unit = found[3] or (" window" if found[2] == "1" else " windows")
    return f"{_base(found[1])} (half-life {found[2]}{unit})"


def plain_parts(parts: Mapping[str, float]) -> dict[str, float]:
    """Return what an explanation consists of by plain name, the strongest first.

    The parts of one kind with several half-lives are added up, as all parts add up to the score.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    for feature, value in parts.items():
        found = _HALF_LIFE.fullmatch(feature)
        name = (found and _base(found[1])) or _base(feature) or feature
        sums[name] += value
    return dict(sorted(sums.items(), key=lambda part: -abs(part[1])))


def _base(feature: str) -> str | None:
    for pattern, name in _OF_COLUMNS:
        if found := pattern.fullmatch(feature):
            return name.format(found[1])
    return _NAMES.get(feature)
