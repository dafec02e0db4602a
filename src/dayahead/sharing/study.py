"""The entries of the cache that the next run of a study reuses."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from dayahead.config.baselines import baselines_beside
from dayahead.config.params import Params, load_params
from dayahead.core.cache import Cache
from dayahead.core.errors import ConfigError
from dayahead.core.project import cache_root
from dayahead.dataset.item_table import item_table
from dayahead.dataset.manifest import RawManifest
from dayahead.dataset.schema import load_dataset
from dayahead.distributed.launch import main_process
from dayahead.distributed.process import Process
from dayahead.download.convert import conversion_key
from dayahead.preprocess.incremental import FinishedRuns
from dayahead.sharing.manifest import Entry
from dayahead.train.cached_windows import CachedWindows
from dayahead.train.catalogue import Catalogue
from dayahead.train.checks import select_windows
from dayahead.train.compared_baselines import baseline_study
from dayahead.train.study import Study
from dayahead.windows.folder import WindowFolder

DATA = (Path("data/raw"), Path("data/windows"))


@dataclass(frozen=True)
class StudyEntries:
    """The cache entries that a run of a study can use, over this log or a longer one."""

    always: Sequence[Entry]
    """Converted source files, the run of preprocess and all evaluations."""
    fits: Sequence[Sequence[Entry]]
    """Fits of the run and of each of its baselines, by window, the newest last."""

    def select(self, is_there: Callable[[Entry], bool], *, all_fits: bool) -> list[Entry]:
        """Return the existing entries; of fits only the newest of each run, unless `all_fits`."""
        found = [entry for entry in self.always if is_there(entry)]
        for fits in self.fits:
            newest_first = [entry for entry in reversed(fits) if is_there(entry)]
            found += newest_first if all_fits else newest_first[:1]
        return list(dict.fromkeys(found))


def is_cached(entry: Entry) -> bool:
    """Whether the cache of this project has an entry; its files are not verified."""
    kind, key = entry
    return key in Cache(cache_root() / kind)


def study_entries(root: Path) -> StudyEntries:
    """Compute the keys of the study in params.yaml from its settings and data/, as a run would.

    Raises:
        ConfigError: data/raw or data/windows is missing, or the settings do not suit them.
        DataError: they are damaged.
    """
    with chdir(root):  # settings name files by paths in the project
        params = load_params()
        if not all(folder.is_dir() for folder in DATA):
            raise ConfigError(
                f"{root}: {' or '.join(map(str, DATA))} is missing, from which the entries of the "
                f"study get their names; run `dvc pull` or `dvc repro` first"
            )
        raw, windows = DATA
        study = Study(params=params, windows=windows, results=Path(), models=Path())
        always = _entries_of_data(params, raw)
        fits = []
        for each, process in _runs(study):
            keys = _keys(each, process)
            fits.append([entry for entry in keys if entry[0] == "fits"])
            always += [entry for entry in keys if entry[0] == "evaluations"]
    return StudyEntries(always, fits)


def _entries_of_data(params: Params, raw: Path) -> list[Entry]:
    dataset, config = load_dataset(params.dataset), params.preprocess
    log = RawManifest.read(raw)
    runs = FinishedRuns(dataset, params.window, config.fit_windows)
    converted = [("events", conversion_key(source, dataset)) for source in log.files]
    if (table := item_table(dataset)) is not None and log.items is not None:
        converted += [("events", conversion_key(source, table)) for source in log.items.files]
    return [*converted, ("windows", runs.key(log))]


def _runs(study: Study) -> Iterator[tuple[Study, Process]]:
    """Yield the study and those of its baselines, each with its main process."""
    yield study, main_process(study.params.compute)
    for architecture in baselines_beside(study.params.model.architecture):
        beside = baseline_study(architecture, study, Path())
        yield beside, main_process(beside.params.compute)


def _keys(study: Study, process: Process) -> list[Entry]:
    folder = WindowFolder(study.windows)
    windows, evaluated = select_windows(folder, study.params)
    cached = CachedWindows(study, Catalogue(folder, study.params.model), windows, process)
    indices = [index for index, window in enumerate(windows[1:]) if window in evaluated]
    later = [
        (index, n_after)
        for n_after in range(2, study.params.evaluation.horizon + 1)
        for index in range(len(windows) - n_after)
        if windows[index + n_after] in evaluated
    ]
    return [
        *(("fits", key) for key in cached.keys.fits),
        *(("evaluations", cached.evaluation_key(index)) for index in indices),
        *(("evaluations", cached.later_key(*each)) for each in later),
    ]
