"""Which settings a fit depends on: some have an effect only in combination with others."""

from dataclasses import asdict, fields
from typing import Any, get_type_hints

from dayahead.config.marks import ReadBy, ReadIf
from dayahead.config.params import Params

WITHOUT_EFFECT = {"model.pretrained_items", "training.fit_last", "training.precision"}
"""Instead of two of these, cache keys hold the content of the file and the precision in use."""


def effective_settings(params: Params) -> dict[str, dict[str, Any]]:
    """Return the sections that shape a fit, without the settings that have no effect on it."""
    found = {}
    for section in (each.name for each in fields(params)):
        values = getattr(params, section)
        readers: ReadBy | None = getattr(values, "READ_BY", None)
        if readers is not None:
            hints = get_type_hints(type(values), include_extras=True)
            found[section] = {
                name: value
                for name, value in asdict(values).items()
                if f"{section}.{name}" not in WITHOUT_EFFECT
                and _is_read(hints[name], readers, params)
            }
    return found


def _is_read(hint: object, readers: ReadBy, params: Params) -> bool:
    """Whether the marks of a setting's type, or else of its section, say that it is read."""
    marks = getattr(hint, "__metadata__", ())
    own = next((each for each in marks if isinstance(each, ReadBy)), readers)
    conditions = (each for each in marks if isinstance(each, ReadIf))
    return own.holds(params.model) and all(each.holds(params) for each in conditions)
