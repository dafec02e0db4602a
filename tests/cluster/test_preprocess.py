"""tools/slurm/preprocess.sbatch: Dask workers on two nodes write the same windows."""

import re
import shutil

import pytest

from cluster.study import TWO_NODES
from support.project_copy import change_params

pytestmark = pytest.mark.cluster
AGAIN = "--force --single-item preprocess"


def test_workers_on_two_nodes_write_the_same_windows(study):
    """Of a log that is cut into several tasks for each, and in others than on one machine."""
    log = study.folder / "datasets" / "synthetic.yaml"
    log.write_text(log.read_text().replace("_day: 400", "_day: 4000"))
    study.run("dvc repro preprocess")
    expected = study.outputs()["data/windows"]
    for name in ("data/windows", ".dayahead/windows"):
        shutil.rmtree(study.folder / name)
    lock = (study.folder / "dvc.lock").read_text()
    (study.folder / "dvc.lock").write_text(lock.replace(expected, "0" * 32 + ".dir"))
    change_params(study.folder, {"machine": {"memory_limit": "64MiB"}})
    job = study.submit(f"{TWO_NODES} tools/slurm/preprocess.sbatch {AGAIN}")
    assert job.wait() == "COMPLETED", job.output
    workers = re.findall(r"Register worker .*tcp://([\d.]+):", job.output)
    assert sorted(workers) == ["10.77.0.2", "10.77.0.3"]
    n_tasks = dict(re.findall(r"preprocess: (\w+): (\d+) done", job.output))
    assert int(n_tasks["parts"]) == 2
    assert int(n_tasks["sessions"]) >= 8
    assert study.outputs()["data/windows"] == expected
    assert not list((study.folder / ".dayahead").glob("dask-*.json"))
