"""Send a window's clicks to `dayahead serve --live`, in order of time, some times as fast.

    dayahead serve --live --clock events --models models --events-log replay/events.sqlite
    python benchmarks/replay.py data/windows 2026-01-08 --speed 60

The service has to run with `--clock events`, as the clicks are old, with a model that was fitted
before the window.
"""

import argparse
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import EVENT_TIME, ITEM_ID, N_RESERVED, SESSION_ID, VALUE
from dayahead.features.arrays import ints
from dayahead.windows.folder import WindowFolder

AT_ONCE = 500
"""Clicks of a request."""


def clicks_of(folder: WindowFolder, name: str) -> list[dict[str, Any]]:
    """Return the train clicks of a window in order of time, as /events takes them.

    Raw values are those of item_id and of categorical features.
    """
    window = next(each for each in folder.windows if each.name == name)
    features = folder.statistics.features
    columns = [ITEM_ID, *(key for key, each in features.items() if each.kind == "categorical")]
    table = folder.read(window, "train", [SESSION_ID, EVENT_TIME, *columns])
    lists = table[ITEM_ID].combine_chunks()
    rows = pc.list_parent_indices(lists).to_numpy()
    steps = np.arange(len(rows)) - lists.offsets.to_numpy()[rows]
    times = ints(pa.chunked_array([table[EVENT_TIME].combine_chunks().flatten()]))
    raw = {column: _raw(folder, column, table[column].combine_chunks()) for column in columns}
    sessions = table[SESSION_ID].to_pylist()
    order = np.lexsort([steps, rows, times])
    return [
        {
            "event_id": f"{sessions[rows[i]]}/{steps[i]}",
            "session_id": sessions[rows[i]],
            "event_time": times[i] / 1e6,
            **{column: values[i] for column, values in raw.items()},
        }
        for i in order.tolist()
    ]


def _raw(folder: WindowFolder, column: str, indices: pa.ListArray) -> list[Any]:
    values = folder.vocabulary(column)[VALUE].combine_chunks()
    rows = indices.flatten().to_numpy() - N_RESERVED
    found: list[Any] = values.take(pa.array(rows, mask=rows < 0)).to_pylist()
    return found


class Client:
    """A connection to a service."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._connection = http.client.HTTPConnection(host, port)

    def post(self, path: str, body: Any) -> Any:  # noqa: ANN401
        """Post JSON; return that of the answer.

        Raises:
            SystemExit: the answer is an error.
        """
        self.begin(path, body)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status not in {200, 202}:
            raise SystemExit(f"{path}: {answer.status} {text[:500].decode()}")
        return json.loads(text)

    def begin(self, path: str, body: Any) -> None:  # noqa: ANN401
        """Post JSON without waiting for an answer."""
        headers = {"content-type": "application/json"}
        self._connection.request("POST", path, json.dumps(body), headers)

    def send(self, clicks: list[dict[str, Any]]) -> None:
        """Send clicks to /events.

        Raises:
            SystemExit: one of them is refused.
        """
        for start in range(0, len(clicks), AT_ONCE):
            taken = self.post("/events", {"events": clicks[start : start + AT_ONCE]})
            if taken["refused"]:
                raise SystemExit(f"refused: {taken['refused'][0]}")


def paced(clicks: list[dict[str, Any]], speed: float) -> Iterator[list[dict[str, Any]]]:
    """Yield the clicks of each tenth of a second when it is their time."""
    first, start, sent = clicks[0]["event_time"], time.perf_counter(), 0
    times = [(each["event_time"] - first) / speed for each in clicks]
    while sent < len(clicks):
        due = int(np.searchsorted(times, time.perf_counter() - start, side="right"))
        yield clicks[sent:due]
        sent = due
        time.sleep(0.1)


def main() -> None:
    """Replay a window."""
    parser = argparse.ArgumentParser(description="Replay a window's clicks.")
    parser.add_argument("windows", type=Path)
    parser.add_argument("window")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--speed", type=float, default=60.0)
    chosen = parser.parse_args()
    clicks = clicks_of(WindowFolder(chosen.windows), chosen.window)
    client, sent = Client(chosen.port), 0
    for part in paced(clicks, chosen.speed):
        client.send(part)
        sent += len(part)
        print(f"\r{sent:,} of {len(clicks):,} clicks", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
