"""Settings that differ from the defaults of Dayahead."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dayahead.config.effective_settings import WITHOUT_EFFECT, effective_settings
from dayahead.config.overrides import overrides_of
from dayahead.config.params import Params, flat_settings, load_params

Setting = str | int | float | bool | None | Sequence[Any] | Mapping[str, Any]
DEFAULTS: Final = Path(__file__).with_name("defaults.yaml")
"""params.yaml as it comes with Dayahead; a test compares both."""


def changed_settings(settings: Mapping[str, Setting]) -> dict[str, tuple[Setting, Setting]]:
    """Return the settings that differ from the defaults, each with its default.

    `settings` are params.yaml, flat: {"model.n_layer": 2, ...}.
    """
    defaults = flat_settings(load_params(DEFAULTS))
    return {
        key: (value, defaults.get(key))
        for key, value in settings.items()
        if value != defaults.get(key)
    }


def unread_settings(params: Params) -> list[str]:
    """Name the changed settings that the model of these settings does not read."""
    effective = effective_settings(params)

    def is_read(key: str) -> bool:
        section, _, name = key.partition(".")
        # Keys such as model.config.activation are parts of one setting.
        name = name.partition(".")[0]
        # The types that are predicted say what is evaluated, whatever the model.
        is_used = key in WITHOUT_EFFECT or key == "events.targets"
        return section not in effective or name in effective[section] or is_used

    return [key for key in changed_settings(flat_settings(params)) if not is_read(key)]


def command_of(settings: Mapping[str, Setting]) -> str:
    """Return the command that runs the study from the defaults."""
    options = [
        f"-S {shlex.quote(override)}"
        for key, (value, _) in changed_settings(settings).items()
        for override in overrides_of(key, value)
    ]
    return " ".join(["dvc exp run", *options])
