"""tools/train.sbatch on two nodes: undisturbed or not, it ends with the same bytes."""

import pytest

from support.project_copy import change_params

pytestmark = pytest.mark.cluster


def test_the_recipe_completes(study, reference):
    job = study.train()
    assert job.wait() == "COMPLETED", job.output
    assert "attempt 1 on n[1-2]" in job.output
    assert study.outputs() == reference


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_other_launchers_inside_an_allocation(study, reference, launcher):
    job = study.train(launcher=launcher)
    assert job.wait() == "COMPLETED", job.output
    assert study.outputs() == reference


def test_memories_on_four_processes_of_two_nodes_are_those_of_one(prepared, tmp_path):
    """Each reads a quarter of the head's examples, and all end with the same bytes."""
    of_memory = {"model": {"architecture": "memory", "network": "none"}}
    alone, divided = (prepared.copied(tmp_path / name) for name in ("alone", "divided"))
    for study in (alone, divided):
        change_params(study.folder, of_memory)
    alone.run("dvc repro")
    job = divided.train("--ntasks-per-node=2")
    assert job.wait() == "COMPLETED", job.output
    assert job.state["NumTasks"] == "4"
    assert divided.outputs() == alone.outputs()


def test_an_unknown_launcher_is_named(study):
    job = study.train(launcher="mpiexec")
    assert job.wait() == "FAILED"
    assert (job.state["ExitCode"], job.output.count("\n")) == ("2:0", 1)
    assert "expected srun, mpirun or torchrun (got mpiexec)" in job.output


def assert_resumed(study, job, reference):
    assert job.wait() == "COMPLETED", job.output
    assert job.state["Restarts"] == "1"
    first, second = job.output.split("attempt 2 on n[1-2]")  # the log of the first is not lost
    assert "attempt 1 on n[1-2]" in first
    assert "from the cache" in second
    assert study.outputs() == reference


def test_a_requeued_job_resumes(study, reference):
    """As after a pre-emption, in the midst of a window."""
    job = study.train()
    study.wait_for_fits(job)
    study.lab.run(f"scontrol requeue {job.number}")
    assert_resumed(study, job, reference)
    assert "error: stopped by SIGTERM" in job.output


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_job_resumes_after_the_loss_of_a_node(study, reference, node):
    """Of the first, where the batch script and DVC are killed too, or of another one."""
    job = study.train()
    study.wait_for_fits(job)
    study.lab.machines[node].stop()
    study.lab.wait_until(lambda: job.state["JobState"] != "RUNNING")
    study.lab.start_node(node)
    assert_resumed(study, job, reference)


def test_a_job_resumes_after_its_time_limit(study, reference):
    """Slurm sends the signal up to a minute early; one process is held up until it comes."""
    job = study.train("--time=1 --signal=B:USR1@1")
    study.wait_for_fits(job)
    study.lab.run("pkill -STOP -f stages/train.py", machine="n2")
    study.lab.wait_until(lambda: "Restarts=1" in study.lab.run(f"scontrol show job {job.number}"))
    study.lab.run(f"scontrol update JobId={job.number} TimeLimit=10")
    assert_resumed(study, job, reference)


def test_a_cancelled_job_is_resumed_by_the_next(study, reference):
    job = study.train()
    study.wait_for_fits(job)
    study.lab.run(f"scancel {job.number}")
    assert job.wait() == "CANCELLED"
    assert "error: stopped by SIGTERM" in job.output
    assert "task 0: Exited with exit code 143" in job.output
    job = study.train()
    assert job.wait() == "COMPLETED", job.output
    assert "from the cache" in job.output
    assert study.outputs() == reference


def test_a_second_job_in_the_same_folder_is_refused(study, reference):
    job = study.train()
    study.wait_for_fits(job)
    second = study.train()
    assert second.wait() == "FAILED"
    assert second.state["ExitCode"] == "75:0"
    assert f"of n1, Slurm job {job.number} is at work here" in second.output
    assert job.wait() == "COMPLETED", job.output
    assert study.outputs() == reference
