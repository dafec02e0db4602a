"""Install the packages of lock files with uv into an environment; say what takes time.

Nothing is installed that the files do not name. torch is taken for the GPU or, without one, for the
CPU: its ordinary wheel needs CUDA's packages, several GB.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pip_settings import pip_settings, uv_environment

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).parent / "uv"
CUDA = ROOT / "requirements-cuda.txt"
BUILD = (
    *("--build-constraints", str(ROOT / "requirements-setup.txt"), "--require-build-hashes"),
    *("--preview-features", "build-dependency-hashes"),
)
TORCH = re.compile(r"^torch==[^\s;]+", re.MULTILINE)
UNSAID = re.compile(
    r" *([-+~]|Downloaded|Built) |(Using Python|Resolved|Checked|Audited|Prepared|Uninstalled) "
    r"|warning: Failed to hardlink| +If (the cache|this is)"
)
"""Lines of uv that are not printed: single packages, short durations, how files are copied."""
NOT_THERE = "No solution found"
NOT_REACHED = re.compile(f"{NOT_THERE}|Failed to fetch|Request failed")


def main() -> int:
    """Return uv's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--editable", help="instead of files: a project, in its place")
    parser.add_argument("--torch", choices=("cpu", "cuda"), help="default: what the machine has")
    given = parser.parse_args()
    try:
        if given.editable:
            install(given.environment, "--editable", given.editable)
        else:
            install_locked(given.environment, given.files, given.torch)
    except UvError as error:
        sys.stderr.write(error.message)
        return error.status
    return 0


def install_locked(environment: Path, files: Sequence[Path], torch_kind: str | None) -> None:
    """Install what the files name, torch of this kind among it if they name torch."""
    words = [word for file in files for word in ("--requirement", str(file))]
    torch = TORCH.search("".join(file.read_text(encoding="utf-8") for file in files))
    with tempfile.NamedTemporaryFile("w+", suffix=".txt") as ordinary:
        if torch and sys.platform == "linux":
            kind = torch_kind or installed_torch(environment) or ("cuda" if has_gpu() else "cpu")
            is_a_must = kind == torch_kind
            if kind == "cuda" or not has_cpu_torch(environment, torch[0], is_a_must):
                ordinary.write(torch[0].replace("==", "==="))  # == accepts a CPU build too
                ordinary.flush()
                words += ["--requirement", str(CUDA), "--constraints", ordinary.name]
        install(environment, "--require-hashes", *words)


def has_gpu() -> bool:
    """Return whether NVIDIA's driver is there and finds a GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    asked = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, check=False)
    return asked.returncode == 0 and b"GPU" in asked.stdout


def installed_torch(environment: Path) -> str | None:
    """Return what an environment's torch is built for, cpu or cuda; None without torch."""
    found = [folder.name for folder in environment.glob("lib/*/site-packages/torch-*.dist-info")]
    return None if not found else "cpu" if "+cpu" in found[0] else "cuda"


def has_cpu_torch(environment: Path, torch: str, is_a_must: bool) -> bool:
    """Install a CPU build that pip would find here, else that of torch's own index."""
    try:
        install(environment, f"{torch}+cpu")
    except UvError as error:
        if NOT_THERE not in error.message:
            raise
    else:
        return True
    say(f"Looking for {torch}+cpu in torch's own index")
    try:
        install(environment, "--torch-backend", "cpu", torch)
    except UvError as error:
        if is_a_must or not NOT_REACHED.search(error.message):
            raise
        say("No CPU build of torch is in reach: taking the ordinary one, with CUDA (several GB)")
        return False
    return True


class UvError(Exception):
    """uv's exit status, and its message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def install(environment: Path, *arguments: str) -> None:
    """Run `uv pip install` of exactly these; print what takes time.

    Raises:
        UvError: uv failed.
    """
    # Not as this project, whose `[tool.uv]` overrides versions: peers have versions of their own.
    where = ("--project", ROOT.anchor)
    command = [UV, *where, "pip", "install", "--no-deps", "--python", environment, *BUILD]
    command += arguments
    if pip_settings().get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        command.append("--no-index")
    message = ""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=uv_environment()) as uv:
        assert uv.stderr is not None
        for line in uv.stderr:
            if message or line.startswith("error: "):
                message += line
            elif not UNSAID.match(line):
                say(line)
    if uv.returncode:
        raise UvError(uv.returncode, message)


def say(what: str) -> None:
    """Print it at once."""
    sys.stdout.write(f"  {what.rstrip()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
