"""Nights of G1 with a live service beside them, and what the page says of a client's faults.

Each day's clicks go to `dayahead serve --live` over HTTP, the day is added to the official log, and
`dayahead nightly` compares both logs, fits, evaluates with ticks and publishes; the service takes
the model over before the next day. On three days one client (device group 3, a third of the clicks)
is broken: its events are missing, come twice under other ids, or are an hour ahead.

Command: DAYAHEAD_DATA=... python benchmarks/live_nights.py [--first 3] [--nights 10]
         [-S model.network=none]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import pandas as pd

from dayahead.config.loading import read_yaml
from dayahead.nightly.history import Entry, History
from dayahead.nightly.live_log import KEY
from dayahead.nightly.served import STATUS
from live_service import running
from measurement import print_header
from replay import Client
from scratch_project import PROJECT, ScratchProject
from shop_days import changed

BEGIN = datetime(2017, 10, 1, tzinfo=UTC)
FAULTS = {6: "missing", 8: "doubled", 10: "ahead"}
"""What is wrong with a client's events, by day of October."""
BROKEN = 3
"""Device group of the client."""
DECIDED = {STATUS[outcome] for outcome in ("published", "held", "refused")}
"""Exit statuses of a night that has published, held or refused."""
PATIENCE = 120
"""Seconds in which a service takes a model over."""
FEATURES = ("environment", "device", "os", "country", "region", "referrer")
SETTINGS = {
    "window": {"overrun": "cut"},
    "model": {"features": ["referrer", "device", "region"]},
    "evaluation": {"split": "all"},
    "tracking": {"log_model": False},
}
Events = list[dict[str, Any]]


def create(folder: Path, settings: str) -> ScratchProject:
    """Return a DVC project of G1 without a click, with the preset live/ten-minutes."""
    project = ScratchProject.create(folder, SETTINGS)
    project.set("params.yaml", read_yaml(PROJECT / "presets" / "live" / "ten-minutes.yaml"))
    project.set("params.yaml", changed(settings))
    for name in (".gitignore", ".dvcignore", ".dvc/config"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(PROJECT / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return project


def read_clicks() -> pd.DataFrame:
    """Return all clicks of G1 in order of time, as clients report them."""
    paths = sorted(Path(os.environ["DAYAHEAD_DATA"]).glob("g1-news/clicks-*.csv.gz"))
    clicks = pd.concat([pd.read_csv(path, dtype={"session_id": str}) for path in paths])
    clicks.columns = clicks.columns.str.removeprefix("click_").str.removesuffix("_type")
    names = {"article_id": "item_id", "deviceGroup": "device"}
    clicks = clicks.rename(columns=names).sort_values("timestamp", ignore_index=True, kind="stable")
    clicks["event_time"] = clicks["timestamp"] / 1000
    clicks["event_id"] = clicks.index.astype(str)
    return clicks[["event_id", "session_id", "item_id", "event_time", *FEATURES]]


def events_of(clicks: pd.DataFrame, day: datetime) -> Events:
    """Return what clients report on a day, with the fault that it has."""
    start = day.timestamp()
    end = start + timedelta(days=1).total_seconds()
    of_day = clicks[clicks["event_time"].between(start, end, inclusive="left")]
    is_broken = of_day["device"] == BROKEN
    match FAULTS.get(day.day):
        case "missing":
            of_day = of_day[~is_broken]
        case "doubled":
            again = of_day[is_broken].assign(event_id="again/" + of_day["event_id"])
            of_day = pd.concat([of_day, again]).sort_values("event_time", kind="stable")
        case "ahead":
            hour = timedelta(hours=1).total_seconds()
            reported = of_day["event_time"] + hour * is_broken
            of_day = of_day.assign(event_time=reported)  # in the order in which they happened
    events: Events = of_day.to_dict("records")
    return events


def deliver(project: ScratchProject, day: datetime) -> None:
    """Add a day's sessions to the official log, which is complete up to the day's end."""
    project.add_clicks(day, day + timedelta(days=1))


def night(project: ScratchProject) -> Entry:
    """Run a night and return its decision."""
    environment = project.environment
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"  # has dvc
    command = [sys.executable, "-m", "dayahead", "nightly"]
    done = subprocess.run(
        command, cwd=project.folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in DECIDED:
        raise SystemExit(done.stdout + done.stderr)
    return History(project.folder / "nights").read().decisions[-1]


def wait_for(port: int, model: str) -> float:
    """Wait until a model is served; return the seconds.

    Raises:
        SystemExit: the service does not take it over.
    """
    start = time.perf_counter()
    while (seconds := time.perf_counter() - start) < PATIENCE:
        with urlopen(f"http://127.0.0.1:{port}/ready") as answer:
            if json.load(answer)["model"]["version"] == model:
                return seconds
        time.sleep(0.1)
    raise SystemExit(f"{model} was not taken over within {PATIENCE} seconds")


def main() -> None:
    """Run the nights, and print what the page has of each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=3, help="day of October")
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("-S", dest="settings", default="")
    arguments = parser.parse_args()
    print_header()
    clicks = read_clicks()
    with TemporaryDirectory() as folder:
        project = create(Path(folder), arguments.settings)
        before = range(arguments.first - 1)
        for number in before:
            deliver(project, BEGIN + timedelta(days=number))
        model = night(project).model
        with running("--published", "published", cwd=project.folder, env=project.environment) as (
            port,
            _,
        ):
            for number in range(len(before), len(before) + arguments.nights):
                day = BEGIN + timedelta(days=number)
                takeover = wait_for(port, model)
                events = events_of(clicks, day)
                start = time.perf_counter()
                Client(port).send(events)
                sent = time.perf_counter()
                deliver(project, day)
                decision = night(project)
                seconds = time.perf_counter() - sent
                model = decision.model if decision.kind == "published" else model
                print(
                    f"{day:%d %b}, {FAULTS.get(day.day, 'as usual')}: {len(events):,} events in "
                    f"{sent - start:.0f} s, model taken over in {takeover:.1f} s, night "
                    f"{seconds:.0f} s\n{shown(decision)}",
                    flush=True,
                )


def shown(decision: Entry) -> str:
    """Return what was decided, with the guards that refused it, and what was found of the logs."""
    failed = [each["guard"] for each in decision.checks if not each["passed"]]
    metrics = {name: round(value, 4) for name, value in decision.metrics.items()}
    return f"  {decision.kind} {failed or ''} {metrics}\n  {decision.details.get(KEY)}"


if __name__ == "__main__":
    main()
