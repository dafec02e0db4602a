"""`train` on a log that grew by an hour: what the hour costs, and whether results stay the same.

Twelve hours of G1 (2017-10-02T11 to T22) are trained, then the log grows by the next one. Every run
is `python stages/train.py` in a process of its own, in a scratch copy of the project: what DVC
starts, with imports, MLflow tracking and hashing of all windows' files. DVC's own seconds, which do
not depend on the stage, are excluded. Printed are

start-up    two windows from the cache, which any run takes; whatever grows with the history (hashes
            of the earlier windows, linking their results) counts for the hour
one window  a twelfth of twelve windows without a cache, less start-up, scaled to the hour's number
            of sessions
the hour    the run over the longer log: at most start-up and 1.3 times one window

Then results/ and models/ must equal those of thirteen windows without a cache, byte for byte.

Command: DAYAHEAD_DATA=... python benchmarks/longer_log.py
"""

import statistics
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dayahead.core.fingerprints import sha256_of
from measurement import print_header, seconds
from scratch_project import ScratchProject, Settings

N_WINDOWS, ROUNDS, ALLOWED = 12, 3, 1.3
FIRST = datetime(2017, 10, 2, 11, tzinfo=UTC)
SETTINGS: Settings = {
    "window": {"unit": "hour", "first": f"{FIRST:%Y-%m-%dT%H}"},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
}
"""The model is that of params.yaml."""


def measure_start_up(project: ScratchProject) -> float:
    """Return the seconds for two windows from the cache."""
    second = FIRST + timedelta(hours=1)
    project.set("params.yaml", {"window": {"last": f"{second:%Y-%m-%dT%H}"}})
    project.run_stage("train")
    start_up = statistics.median(project.run_stage("train") for _ in range(ROUNDS))
    project.set("params.yaml", {"window": {"last": None}})
    return start_up


def measure_hour(project: ScratchProject) -> float:
    """Return the seconds for the longer log, with the shorter one's fits in the cache."""
    times = []
    for _ in range(ROUNDS):
        project.restore_cache()
        times.append(project.run_stage("train"))
    return statistics.median(times)


def measure_hashing(project: ScratchProject) -> float:
    """Return the seconds for hashing all windows' files."""
    paths = list((project.folder / "data" / "windows").glob("*.parquet"))
    return seconds(lambda: [sha256_of(path) for path in paths])


def run(project: ScratchProject) -> None:
    """Take all measurements, print them and check the limit."""
    end = FIRST + timedelta(hours=N_WINDOWS)
    project.add_clicks(datetime(2017, 10, 1, tzinfo=UTC), end)
    project.prepare()
    shorter = project.run_stage("train")
    cached = project.run_stage("train")
    project.save_cache()
    start_up = measure_start_up(project)
    project.add_clicks(end, end + timedelta(hours=1))
    project.prepare()
    hour = measure_hour(project)
    outputs = project.output_hashes()
    hashing = measure_hashing(project)
    project.clear_cache()
    longer = project.run_stage("train")
    assert project.output_hashes() == outputs, "results differ from those without a cache"
    *earlier, last = list(project.session_counts().values())[-N_WINDOWS - 1 :]
    one = (shorter - start_up) / N_WINDOWS * last / statistics.mean(earlier)
    share = (hour - start_up) / one
    print(
        f"start-up {start_up:.1f} s; {N_WINDOWS} windows {shorter:.1f} s, from the cache "
        f"{cached:.1f} s; {N_WINDOWS + 1} windows {longer:.1f} s\n"
        f"one window {one:.1f} s ({last:,} sessions; mean of the {N_WINDOWS} windows "
        f"{statistics.mean(earlier):,.0f})\n"
        f"the hour {hour:.1f} s (median of {ROUNDS}), of which hashing all windows {hashing:.2f} "
        f"s: start-up and {share:.2f} times one window, at most {ALLOWED} allowed\n"
        f"{len(outputs)} files of results/ and models/ equal those of a run without a cache"
    )
    assert share <= ALLOWED, "an additional window costs too much"


def main() -> None:
    """Run in a temporary folder."""
    print_header()
    with tempfile.TemporaryDirectory() as folder:
        run(ScratchProject.create(Path(folder), SETTINGS))


if __name__ == "__main__":
    main()
