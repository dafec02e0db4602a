"""A small study on a cluster: the commands of a user, and what is left of them."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from dayahead.core.cache import Cache
from support.outputs import locked_outputs
from support.slurm_lab import Job, SlurmLab

ROOT = Path(__file__).parents[2]
TWO_NODES = "--nodes=2 --ntasks-per-node=1 --cpus-per-task=1"


@dataclass(frozen=True)
class Study:
    """A project in a folder that the head and all nodes see."""

    lab: SlurmLab
    folder: Path

    def copied(self, folder: Path) -> "Study":
        """Return a copy, with DVC's cache."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Study(self.lab, folder)

    @property
    def environ(self) -> dict[str, str]:
        """What a user sets here."""
        return {"DVC_SITE_CACHE_DIR": str(self.folder / ".dvc" / "tmp" / "site")} | {
            # The lab's user is root, whom Open MPI would refuse.
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }

    def run(self, command: str) -> str:
        """Run a command on the head, in the project's environment."""
        activated = f"bash -c 'source .venv/bin/activate; {command}'"
        return self.lab.run(activated, self.folder, **self.environ)

    def submit(self, command: str, **environ: str) -> Job:
        """Submit what follows `sbatch`."""
        return self.lab.submit(self.folder, command, **self.environ, **environ)

    def train(self, options: str = "", launcher: str = "") -> Job:
        """Submit the recipe on two nodes."""
        return self.submit(f"{TWO_NODES} {options} tools/train.sbatch {launcher}")

    def wait_for_fits(self, job: Job, n: int = 1) -> None:
        """Wait until so many windows are cached and the job is at work on the next."""

        def is_there() -> bool:
            assert job.state["JobState"] in ("PENDING", "CONFIGURING", "RUNNING"), job.output
            return len(Cache(self.folder / ".dayahead" / "fits").keys()) >= n

        self.lab.wait_until(is_there)

    def outputs(self, experiment: str = "") -> dict[str, str]:
        """Hash of every output but clock times by its path, here or of an experiment."""
        return locked_outputs(self._lock_file(experiment))

    def _lock_file(self, experiment: str) -> str:
        if not experiment:
            return (self.folder / "dvc.lock").read_text()
        refs = self.run(f"git for-each-ref --format=%\\(refname\\) refs/exps/*/*/{experiment}")
        [ref] = refs.split()
        return self.run(f"git show {ref}:dvc.lock")
