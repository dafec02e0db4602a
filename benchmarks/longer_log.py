"""`train` on a log that grew by an hour: what the hour costs, and that nobody can tell afterwards.

Twelve hours of G1 (2017-10-02T11 to T22) are trained, then the log grows by the next one. Every run
is `python stages/train.py` in a process of its own, in a scratch copy of the project: what DVC
starts, with imports, MLflow's journal and the hashing of all windows' files. DVC's own seconds,
which are the same whatever a stage does, are not in it. Told are

start-up    two windows that come out of the store, what any run takes: whatever grows with the
            history (hashes of the earlier windows, their results linked out) counts as the hour's
one window  a twelfth of twelve from nothing less start-up, for as many sessions as the hour has
the hour    the run over the longer log: at most start-up and 1.3 times one window

Then results/ and models/ must be, byte for byte, those of thirteen windows from nothing.

Command: DAYAHEAD_DATA=... python benchmarks/longer_log.py
"""

import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dayahead.core.fingerprints import sha256_of
from facts import machine_facts
from scratch_project import Scratch

N_WINDOWS, ROUNDS, ALLOWED = 12, 3, 1.3
FIRST = datetime(2017, 10, 2, 11, tzinfo=UTC)
GROWN = FIRST + timedelta(hours=N_WINDOWS)
"""The hour by which the log grows."""
SETTINGS = {
    "window": {"unit": "hour", "first": f"{FIRST:%Y-%m-%dT%H}"},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
}
"""The model is that of params.yaml."""


def start_up(project: Scratch) -> float:
    """Seconds for two windows out of the store."""
    second = FIRST + timedelta(hours=1)
    project.set("params.yaml", {"window": {"last": f"{second:%Y-%m-%dT%H}"}})
    project.stage("train")
    seconds = [project.stage("train") for _ in range(ROUNDS)]
    project.set("params.yaml", {"window": {"last": None}})
    return statistics.median(seconds)


def the_hour(project: Scratch) -> float:
    """Seconds for the longer log where the shorter one's fits are kept."""
    seconds = []
    for _ in range(ROUNDS):
        project.go_back(to="aside")
        seconds.append(project.stage("train"))
    return statistics.median(seconds)


def hashes(project: Scratch) -> float:
    """Seconds for the hashes of all windows' files alone."""
    start = time.perf_counter()
    for path in (project.folder / "data" / "windows").glob("*.parquet"):
        sha256_of(path)
    return time.perf_counter() - start


def evaluated(project: Scratch) -> None:
    """Run all, and print what it took."""
    project.add_clicks(datetime(2017, 10, 1, tzinfo=UTC), GROWN)
    project.prepare()
    twelve = project.stage("train")
    again = project.stage("train")
    project.lay_aside()
    begun = start_up(project)
    project.add_clicks(GROWN, GROWN + timedelta(hours=1))
    project.prepare()
    hour = the_hour(project)
    left = project.left()
    hashing = hashes(project)
    project.go_back(to=None)
    thirteen = project.stage("train")
    assert project.left() == left, "the longer log's results are not those of a fresh run"
    *earlier, last = list(project.sessions().values())[-N_WINDOWS - 1 :]
    one = (twelve - begun) / N_WINDOWS * last / statistics.mean(earlier)
    share = (hour - begun) / one
    print(
        f"start-up {begun:.1f} s; {N_WINDOWS} windows {twelve:.1f} s, out of the store "
        f"{again:.1f} s; {N_WINDOWS + 1} windows {thirteen:.1f} s\n"
        f"one window {one:.1f} s ({last:,} sessions; {statistics.mean(earlier):,.0f} in the mean "
        f"of the {N_WINDOWS})\n"
        f"the hour {hour:.1f} s (median of {ROUNDS}), {hashing:.2f} s of it the hashes of all "
        f"windows: start-up and {share:.2f} times one window, at most {ALLOWED} allowed\n"
        f"{len(left)} files of results/ and models/ are those of a run over all from nothing"
    )
    assert share <= ALLOWED, "a window more costs too much"


def main() -> None:
    """Do it in a folder that is removed."""
    print(f"{machine_facts()}\npython benchmarks/longer_log.py")
    with tempfile.TemporaryDirectory() as folder:
        evaluated(Scratch.begun(Path(folder), SETTINGS))


if __name__ == "__main__":
    main()
