"""docs/nightly.md: exit statuses are those of the code, units and DAGs are valid."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dayahead.core.errors import TERMINATED
from dayahead.nightly.pipeline import RETRY
from dayahead.nightly.served import STATUS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "nightly.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_table_lists_every_exit_status():
    [table] = re.findall(r"^\| status \|.*\n\|-.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert listed == {*STATUS.values(), RETRY, TERMINATED, 1}


def test_kubernetes_and_systemd_do_not_retry_what_only_a_person_can_solve():
    final = sorted({*STATUS.values()} - {0})
    manifest = (ROOT / "containers/nightly.yaml").read_text()
    assert f"values: {final}" in manifest
    prevented = re.search(r"^RestartPreventExitStatus=(.*)$", PAGE, re.MULTILINE)[1]
    assert prevented.split() == [str(status) for status in sorted([1, *final])]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units(tmp_path):
    for text in blocks("ini"):
        name = re.search(r"/etc/systemd/system/(\S+)", text)[1]
        text = text.replace("/srv/shop/.venv/bin/dayahead", "/bin/true").replace("/srv/shop", "/")
        (tmp_path / name).write_text(text)
    (tmp_path / "alert@.service").write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n")
    (tmp_path / "dayahead.service").write_text(
        (tmp_path / "dayahead.service").read_text().replace("User=dayahead", "User=root")
    )
    units = [tmp_path / "dayahead.service", tmp_path / "dayahead.timer"]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    own = [line for line in done.stderr.splitlines() if "dayahead." in line]
    assert (done.returncode, own) == (0, []), done.stderr
