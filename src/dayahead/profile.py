"""A profile of one fit of the study in params.yaml; results/ stays as it is."""

import tempfile
from dataclasses import replace
from pathlib import Path

from dayahead.config.params import Params
from dayahead.core.errors import ConfigError
from dayahead.train.checks import select_windows
from dayahead.train.profiling import FOLDER
from dayahead.train.stage import train
from dayahead.train.study import Study
from dayahead.windows.folder import WindowFolder

DEFAULT_INDEX = 2
"""Index of the window that is profiled by default: the first ones differ, because model and
optimizer are new. A later one is taken where its model would not be evaluated."""


def profile_fit(params: Params, root: Path, into: Path) -> Path:
    """Fit up to the window of the profile, from the newest fit that is cached; return its folder.

    Args:
        params: settings of the study; without `profile.window` an early window is taken.
        root: project with data/windows.
        into: folder for the profile and the evaluations, in place of earlier ones.

    Raises:
        ConfigError: no such window or steps, or the folder holds the results of the study.
    """
    if into.resolve() == (root / "results").resolve():
        raise ConfigError(
            f"profile: {into} holds the results of the study, which a profile would replace; name "
            f"another folder (--into build/profile)"
        )
    folder = root / "data" / "windows"
    windows, evaluated = select_windows(WindowFolder(folder), params)
    names = [window.name for window in windows]
    first = names.index(evaluated[0].name)  # a study needs one that is evaluated
    index = max(min(DEFAULT_INDEX, len(names) - 2), first - 1)
    if params.profile.window is not None:
        index = names.index(params.profile.window)
    is_last = index == len(names) - 1
    short = replace(
        params,
        profile=replace(params.profile, window=names[index]),
        window=replace(params.window, last=names[max(index + (not is_last), first)]),
        evaluation=replace(params.evaluation, attention_of=()),  # of sessions in any window
        training=replace(params.training, fit_last=is_last),
    )
    with tempfile.TemporaryDirectory(prefix="dayahead-") as models:
        train(Study(params=short, windows=folder, results=into, models=Path(models)))
    return into / FOLDER
