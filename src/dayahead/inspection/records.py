"""Paths of the values within records, and the list of which each element is an event."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download.json_lines import SPREAD
from dayahead.download.json_values import objects, record_of
from dayahead.inspection.dialect import Layout
from dayahead.inspection.finding import Finding
from dayahead.inspection.names import name_score


def lines_of(text: str, name: str) -> list[bytes]:
    """Return a line per object, also of an array or of objects over several lines."""
    if not SPREAD.match(text[:4096].lstrip().encode()):
        return [line.encode() + b"\n" for line in text.split("\n") if line.strip()]
    found = []
    try:
        for line in objects(iter([text]), name):
            found.append(line)
    except SourceError:  # the sample ends within an object
        if not found:
            raise
    return found


def parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Parse lines; those that are no object are left out."""
    for line in lines:
        with suppress(ValueError):
            yield record_of(line)


def find_paths(records: Iterable[Mapping[str, Any]], source: SourceConfig) -> Layout:
    """Return the paths of all values, those of the elements of one list included."""
    plain: Counter[str] = Counter()
    lists: dict[str, Counter[str]] = {}
    for record in records:
        for path, value in _leaves(record, ""):
            if isinstance(value, list):
                inner = lists.setdefault(path, Counter())
                for element in value:
                    is_record = isinstance(element, dict)
                    _count(inner, _leaves(element, f"{path}.") if is_record else [(path, element)])
            else:
                _count(plain, [(path, value)])
    plain = _paths_of_values(plain, lists)
    lists = {path: _paths_of_values(inner, ()) for path, inner in lists.items()}
    explode = _event_list(plain, lists)
    names = [*plain, *(lists[explode] if explode else ())]
    return Layout(replace(source, explode=explode), names, list(_findings(explode, lists)))


def _count(found: Counter[str], leaves: Iterable[tuple[str, Any]]) -> None:
    """Count the values at each path that are not null; a list counts at a path below its own."""
    for path, value in leaves:
        found[f"{path}.[]" if isinstance(value, list) else path] += value is not None


def _paths_of_values(found: Counter[str], lists: Iterable[str]) -> Counter[str]:
    """Leave out lists, and paths of records and lists that are null now and then."""
    within = [*found, *(f"{path}.[]" for path in lists)]
    return Counter(
        {
            path: n
            for path, n in found.items()
            if not path.endswith(".[]")
            and (n or not any(other.startswith(f"{path}.") for other in within))
        }
    )


def _leaves(value: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _leaves(inner, f"{before}{key}.")
        else:
            yield before + key, inner


def _event_list(plain: Iterable[str], lists: Mapping[str, Counter[str]]) -> str | None:
    """Return the list whose elements have an item, if the records themselves have none."""
    has_item = any(name_score(name, "item_id") == 1 for name in plain)
    found = {
        path: max(name_score(_singular(name), "item_id") for name in inner)
        for path, inner in lists.items()
        if inner
    }
    best = max(found, key=lambda path: found[path], default=None)
    return best if best is not None and found[best] == 1 and not has_item else None


def _singular(name: str) -> str:
    return name[:-1] if name.endswith("s") else name


def _findings(explode: str | None, lists: Mapping[str, Counter[str]]) -> Iterator[Finding]:
    if explode:
        yield Finding("source.explode", explode, "likely", "a list of records with an item each")
    for path, inner in lists.items():
        names = {name.rpartition(".")[2] for name in inner}
        if path != explode and {"key"} <= names:
            reason = "a list of keys and values: its values cannot be columns; UNNEST them in SQL"
            yield Finding(path, "not read", "certain", reason)
        elif path != explode:
            yield Finding(path, "not read", "likely", "a list that is not the list of events")
