"""docs/operation.md: its backup restores, and its tables are those of the code."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from dayahead.live.clock import EventClock
from dayahead.live.event_log import Event
from dayahead.live.sqlite_log import SqliteLog
from support.pretended_nights import run_nights
from support.window_folders import bytes_in

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operation.md").read_text(encoding="utf-8")
BACKUP, RESTORE = re.findall(
    r"<!-- not run: by test_operation.py -->\n```bash\n(.*?)```", PAGE, re.DOTALL
)
STUBS = "dvc() { :; }; dayahead() { :; };\n"


def run(script, folder, backup):
    env = {**os.environ, "BACKUP": str(backup)}
    subprocess.run(["bash", "-euc", STUBS + script], cwd=folder, env=env, check=True)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "old"))
    run_nights(tmp_path / "old", 4, first=3)
    return tmp_path / "old"


@pytest.mark.long
def test_a_backup_beside_a_service_restores_nights_models_and_logs(project, tmp_path):
    (tmp_path / "new").mkdir()
    log = SqliteLog(project / "live/events.sqlite", EventClock())
    events = [Event(f"e{n}", "s", None, n, {"item_id": n}) for n in range(100)]
    log.append(events)
    assert (project / "live/events.sqlite-wal").stat().st_size  # what a plain copy would lack
    run(BACKUP, project, tmp_path / "backup")
    log.close()
    run(RESTORE, tmp_path / "new", tmp_path / "backup")
    for folder in ("nights", "published"):
        assert bytes_in(tmp_path / "new" / folder) == bytes_in(project / folder)
        assert bytes_in(project / folder)
    link = (tmp_path / "new/published/current").readlink()
    assert link == (project / "published/current").readlink()
    restored = SqliteLog(tmp_path / "new/live/events.sqlite", EventClock())
    assert [each.id for each in restored.read()] == [each.id for each in events]
    restored.close()


@pytest.mark.long
def test_a_project_without_services_or_tracking_is_saved_too(project, tmp_path):
    (tmp_path / "new").mkdir()
    run(BACKUP, project, tmp_path / "backup")
    run(RESTORE, tmp_path / "new", tmp_path / "backup")
    assert bytes_in(tmp_path / "new/nights") == bytes_in(project / "nights")
