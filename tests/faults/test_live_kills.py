"""`dayahead serve --live`, killed while events come: each that is acknowledged counts once."""

import http.client
import json
import random
import re
import subprocess
import sys
import threading

import pytest

from support.live_windows import LIVE, events_of, spread_sessions
from support.tiny_settings import merge_sections, train_study
from support.window_folders import markov_days, write_window_folder

N_KILLS = 12
STUDY = merge_sections(LIVE, training={"fit_last": False})


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """A model, and the clicks of the day after its last window, a thousand of them."""
    folder = tmp_path_factory.mktemp("day")
    days = markov_days(n_days=2, sessions_per_day=20, n_items=30)
    last = [row for part in markov_days(n_days=10, sessions_per_day=23, n_items=40) for row in part]
    windows = write_window_folder(folder / "windows", [*days, last], features=True)
    spread_sessions(windows)
    models = train_study(windows, folder / "study", STUDY) / "models"
    return models, events_of(windows, 2)


class Process:
    """A service, and a connection to it."""

    def __init__(self, models, log):
        command = [sys.executable, "-m", "dayahead", "serve", "--live", "--clock", "events"]
        command += ["--models", str(models), "--events-log", str(log), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.connection = http.client.HTTPConnection(
            "127.0.0.1", int(re.search(r":(\d+)", line)[1])
        )

    def post(self, path, body):
        self.connection.request(
            "POST", path, json.dumps(body), {"content-type": "application/json"}
        )
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.connection.close()

    def end(self):
        self.process.terminate()
        assert self.process.wait(30) == 0
        self.kill()


def answers(service, events):
    return [
        service.post("/recommend", {"session_id": each, "top_k": 50})[1]["items"]
        for each in sorted({each["session_id"] for each in events})
    ]


def send_until_killed(service, events, sent, until, seconds):
    """Send events one by one; after `until` of them the service has some seconds to live."""
    timer = threading.Timer(seconds, service.process.kill)
    while sent < len(events):
        if sent == until:
            timer.start()
        try:
            status, taken = service.post("/events", {"events": [events[sent]]})
        except (OSError, http.client.HTTPException):
            break
        assert (status, taken["refused"]) == (202, [])
        sent += 1
    timer.cancel()
    service.kill()
    return sent


@pytest.mark.faults
def test_a_killed_service_goes_on_where_it_was(day, tmp_path):
    models, events = day
    whole = Process(models, tmp_path / "whole.sqlite")
    for each in events:
        assert whole.post("/events", {"events": [each]})[0] == 202
    expected = answers(whole, events)
    whole.end()
    stream, acknowledged = random.Random(1), 0
    for number in range(N_KILLS):
        service = Process(models, tmp_path / "killed.sqlite")
        if acknowledged:  # it is there, and is not counted again
            again = events[:acknowledged][-500:]
            status, taken = service.post("/events", {"events": again})
            assert (status, taken["duplicates"]) == (202, len(again))
        until = max(acknowledged, len(events) * number // N_KILLS)
        acknowledged = send_until_killed(
            service, events, acknowledged, until, stream.random() * 0.05
        )
    assert acknowledged > len(events) // 2
    service = Process(models, tmp_path / "killed.sqlite")
    for each in events[acknowledged:]:
        assert service.post("/events", {"events": [each]})[0] == 202
    assert answers(service, events) == expected
    service.end()
