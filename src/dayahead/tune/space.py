"""Search spaces: YAML files of settings and the values that a search tries."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from math import isclose
from pathlib import Path
from typing import Annotated, Any

from optuna.trial import Trial
from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, read_yaml, validated
from dayahead.config.model import FITTED
from dayahead.config.params import Params
from dayahead.config.sections import Settings, flattened, merged
from dayahead.core.errors import ConfigError
from dayahead.core.suggestions import did_you_mean
from dayahead.presets import named_file

Scalar = bool | int | float | str | None
DIGITS = 6
"""Number of significant digits of sampled numbers."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Values:
    """Values that a search tries for one setting: `choices`, or numbers from `low` to `high`."""

    choices: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None
    low: int | float | None = None
    """With `high`, whole numbers if both are."""
    high: int | float | None = None
    step: int | float | None = None
    log: bool = False
    """Whether small numbers are as likely as large ones."""
    when: dict[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)
    """Conditions for this setting to be searched: the value, or values, that other settings must
    have."""

    def __post_init__(self) -> None:
        """Check that the fields go together."""
        given = [name for name in ("low", "high") if getattr(self, name) is not None]
        if (self.choices is None) == (not given) or len(given) == 1:
            raise ValueError("expected either choices, or low and high")
        if self.choices is not None:
            if self.step is not None or self.log:
                raise ValueError("step and log go with low and high, not with choices")
            return
        assert self.low is not None
        assert self.high is not None
        if self.high <= self.low:
            raise ValueError(f"low ({self.low}) must be below high ({self.high})")
        if self.log and (self.step is not None or self.low <= 0):
            raise ValueError("log takes no step, and low must be above 0")
        if self.step is not None:
            steps = (self.high - self.low) / self.step if self.step > 0 else 0.5
            if not isclose(steps, round(steps), rel_tol=1e-9):
                raise ValueError(f"high - low must be a multiple of step ({self.step})")

    def suggest(self, trial: Trial, key: str) -> Scalar:
        """Return a trial's value of the setting `key`."""
        if self.choices is not None:
            return trial.suggest_categorical(key, self.choices)
        low, high, step = self.low, self.high, self.step
        assert low is not None
        assert high is not None
        if isinstance(low, int) and isinstance(high, int) and not isinstance(step, float):
            return trial.suggest_int(key, low, high, step=step or 1, log=self.log)
        value = trial.suggest_float(key, low, high, step=step, log=self.log)
        return float(f"{value:.{DIGITS}g}")  # so that .1 + .2 is .3 and presets are readable

    @property
    def examples(self) -> tuple[Scalar, ...]:
        """Values that the setting's type is checked with: all choices, or both ends."""
        return self.choices or (self.low, self.high)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SearchFile:
    """The content of searches/<name>.yaml."""

    description: str
    """What is searched."""
    space: Annotated[dict[str, Values], Field(min_length=1)]
    """Values to try, by the setting's name."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of every trial, as in a preset: {"model": {"architecture": "gru4rec"}}."""


@plain_dataclass(frozen=True)
class Space:
    """A checked search space over the settings `base`."""

    values: dict[str, Values]
    base: Settings

    def suggest(self, trial: Trial) -> Settings:
        """Return a trial's settings; those whose conditions do not hold are left out."""
        found: Settings = {}
        for key, values in self.values.items():
            known = self.base | found
            if all(known[name] in _allowed(value) for name, value in values.when.items()):
                found[key] = values.suggest(trial, key)
        return found

    def as_json(self) -> str:
        """Return a text that identifies the space: equal texts mean equal spaces."""
        return json.dumps({key: repr(values) for key, values in self.values.items()})


def read_search(name: str, folder: Path) -> SearchFile:
    """Read a search space: `name` in `folder`, or a file's path.

    Raises:
        ConfigError: there is none, or it breaks a rule; names each.
    """
    path = named_file(name, folder, "search space")
    return validated(SearchFile, read_yaml(path), str(path))


def checked_space(search: SearchFile, base: Mapping[str, Any], where: str) -> Space:
    """Check each value of a search space against the type of its setting.

    Args:
        search: file of the search space.
        base: content of params.yaml with what every trial has.
        where: name of the space, for messages.

    Raises:
        ConfigError: names every setting that does not exist or is no part of a search, and every
            value that its setting does not allow.
    """
    flat = flattened(base)
    errors = [error for key in search.space for error in _key_errors(search, key, flat)]
    if not errors:
        for key, values in search.space.items():
            errors += _value_errors(base, key, values.examples, "space")
            for name, value in values.when.items():
                errors += _value_errors(base, name, _allowed(value), f"space.{key}.when")
    if errors:
        raise ConfigError("\n".join(f"{where}: {error}" for error in dict.fromkeys(errors)))
    return Space(search.space, flat)


def _allowed(value: Scalar | Sequence[Scalar]) -> Sequence[Scalar]:
    return value if isinstance(value, list | tuple) else (value,)  # type: ignore[return-value]


def _key_errors(search: SearchFile, key: str, flat: Settings) -> Iterator[str]:
    """Yield errors in the name of a setting, or in those of its conditions."""
    before = [*search.space][: [*search.space].index(key)]
    if key not in flat:
        yield f"space.{key}: no such setting{_suggestion(key, flat)}"
    elif key.partition(".")[0] not in FITTED:
        yield f"space.{key}: a search changes the sections {', '.join(FITTED)} alone"
    for name in search.space[key].when:
        if name not in flat:
            yield f"space.{key}.when.{name}: no such setting{_suggestion(name, flat)}"
        elif name in search.space and name not in before:
            yield f"space.{key}.when.{name}: must come before {key} in the space"


def _suggestion(key: str, flat: Settings) -> str:
    found = did_you_mean(key, flat)
    return f"; {found}" if found else ""


def _value_errors(
    base: Mapping[str, Any], key: str, values: Sequence[Scalar], where: str
) -> Iterator[str]:
    """Yield errors of values by the setting's type; rules over several settings come later."""
    for value in values:
        try:
            validated(Params, merged(base, {key: value}), "")
        except ConfigError as error:
            prefix = f": {key}: "
            # Other lines are about other settings, whose values may change too.
            lines = [line for line in str(error).splitlines() if line.startswith(prefix)]
            yield from (f"{where}.{key}: {line.removeprefix(prefix)}" for line in lines)
