"""Seeds as a job array and as DVC's queue: each ends as an undisturbed run of that seed."""

import pytest

pytestmark = pytest.mark.cluster
SEEDS = (2, 3)


@pytest.fixture(scope="module")
def undisturbed(prepared, tmp_path_factory):
    """Hashes of all outputs by seed, of runs on the head, one after another."""
    study = prepared.copied(tmp_path_factory.mktemp("seeds") / "study")
    found = {}
    for seed in SEEDS:
        study.run(f"dvc exp run --name alone-{seed} -S training.seed={seed}")
        found[seed] = study.outputs()
    assert found[2] != found[3]
    return found


def test_an_array_of_seeds(study, undisturbed):
    """Each task has a node; the first is requeued in the midst of a window, the other goes on."""
    job = study.submit("--array=2-3 --exclusive --cpus-per-task=1 tools/slurm/seeds.sbatch")
    study.wait_for_fits(job)
    study.lab.run(f"scontrol requeue {job.number}_2")
    for seed in SEEDS:
        task = job.task(seed)
        assert task.wait() == "COMPLETED", task.output
        assert study.outputs(f"seed-{seed}") == undisturbed[seed]
        assert f"attempt {1 + (seed == 2)} of seed-{seed}" in task.output
    assert "seed-2" in study.run("dvc exp list --name-only")
    assert not list((study.folder / ".dayahead" / "clones").iterdir())
    assert study.run("git status --porcelain --untracked-files=no") == ""


def test_experiments_of_the_queue_run_beside_a_job(study, reference, undisturbed):
    job = study.train()
    study.wait_for_fits(job)
    study.run("dvc exp run --queue --name queued -S training.seed=2")
    study.run("dvc queue start")
    assert job.wait() == "COMPLETED", job.output
    assert study.outputs() == reference
    study.lab.wait_until(lambda: "queued" in study.run("dvc exp list --name-only"))
    assert study.outputs("queued") == undisturbed[2]
