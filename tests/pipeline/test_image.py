"""The image's entry point, and tools/image, with stand-ins for image and engine."""

import fcntl
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from support import commands

ROOT = Path(__file__).parents[2]
IDENTITY = {
    f"GIT_{name}_{key}": value
    for name in ("AUTHOR", "COMMITTER")
    for key, value in {"NAME": "Me", "EMAIL": "me@localhost"}.items()
}


def run(folder, *command, **environment):
    return commands.run(folder, *command, **{"HOME": str(folder.parent)} | IDENTITY | environment)


@pytest.fixture
def image(tmp_path):
    """A folder like the image's copy of the project; DVC's outputs are ignored as in ours."""
    folder = tmp_path / "image"
    for name in (".dvc/config", ".dvc/.gitignore", "containers/entrypoint"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "tools", folder / "tools")
    shutil.copy(ROOT / ".gitignore", folder)
    (folder / "requirements.txt").write_text("a==1\n")
    (folder / "dvc.yaml").write_text(
        "stages: {write: {cmd: 'echo done > results', outs: [results]}}\n"
    )
    return folder


@pytest.fixture
def work(tmp_path):
    """The folder that a container starts in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def start(image, work):
    entrypoint = image / "containers" / "entrypoint"
    return lambda *command, **environment: run(work, entrypoint, *command, **environment)


def one_line(done):
    assert done.returncode == 1
    assert (done.stderr.count("\n"), done.stderr[:7]) == (1, "error: ")
    return done.stderr


def files(folder):
    every = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in every if path.parts[0] != ".git"}


@pytest.mark.long
def test_an_empty_folder_becomes_a_project_that_runs(start, image, work):
    done = start("dvc", "repro", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert (work / "results").read_text() == "done\n"
    assert files(image) <= files(work)
    assert not (work / ".filling").exists()
    assert run(work, "git", "status", "--porcelain").stdout == "?? dvc.lock\n"
    assert run(work, "git", "log", "--format=%s").stdout == "Dayahead, from its image\n"


def test_a_volume_with_what_its_file_system_makes_is_empty(start, work):
    (work / "lost+found").mkdir()
    assert start("true").returncode == 0
    assert (work / "dvc.yaml").exists()


def test_a_project_is_left_as_it_is(start, work):
    (work / "dvc.yaml").write_text("stages: {}\n")
    (work / "requirements.txt").write_text("a==1\n")
    done = start("sh", "-c", "echo $PYTHONPATH; ls -A")
    assert done.stdout.split() == [f"{work}/src", "dvc.yaml", "requirements.txt"]


def test_the_status_is_that_of_the_command(start):
    assert start("sh", "-c", "exit 7").returncode == 7


def test_another_folder_is_refused(start, work):
    (work / "thesis.tex").touch()
    error = one_line(start("true"))
    assert f"{work} is neither empty nor a Dayahead project (./thesis.tex)" in error
    assert files(work) == {"thesis.tex"}


def test_a_filling_that_was_interrupted_is_finished(start, image, work):
    """At any point: before and after the files, and before the last step."""
    assert start("true").returncode == 0
    for gone in ([".git", "dvc.yaml", "tools"], [".git"], []):
        for name in gone:
            path = work / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (work / ".filling").touch()
        done = start("true")
        assert (done.returncode, done.stderr) == (0, "")
        assert files(work) == files(image)
        assert run(work, "git", "status", "--porcelain").stdout == ""


def test_another_lock_is_refused(start, work):
    (work / "dvc.yaml").write_text("stages: {}\n")
    (work / "requirements.txt").write_text("a==2\n")
    assert "is not that of this image; build the image again (make image)" in one_line(
        start("true")
    )


@pytest.mark.parametrize("name", ["PYTHONPYCACHEPREFIX", "DVC_SITE_CACHE_DIR"])
def test_what_runs_as_code_is_for_this_user_alone(start, tmp_path, name):
    folder = tmp_path / "cache"
    assert start("true", **{name: str(folder)}).returncode == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert f"error: {link} is not of user {os.getuid()}" in one_line(
        start("true", **{name: str(link)})
    )


@pytest.mark.long
def test_one_dvc_at_a_time_in_a_folder(start, work):
    assert start("true").returncode == 0
    lock = work / ".dayahead" / "alone.lock"
    lock.parent.mkdir()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert start("dvc", "status").returncode == 75
        assert start("make", "repro").returncode == 75
        assert start("echo", "free").stdout == "free\n"
    assert start("dvc", "status").returncode == 0


def test_a_base_with_another_python_is_refused(tmp_path):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho 3.10\n")
    python.chmod(0o755)
    install = ROOT / "containers" / "install-system"
    done = run(tmp_path, install, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert "BASE has Python 3.10, expected Python 3.11 or later" in one_line(done)


ENGINE = """#!/bin/sh
printf '%s\\n' "$(basename "$0")" "$@"
find . -type f -printf '%P %m\\n' | sort
while [ $# -gt 0 ]; do case $1 in id=pip,src=*) cat "${1#*src=}";; esac; shift; done
"""


@pytest.fixture
def project(tmp_path):
    """A repository, and on PATH only what tools/image may use."""
    folder = tmp_path / "project"
    (folder / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "image", folder / "tools")
    (folder / "pyproject.toml").write_text('version = "1.2.3"\n')
    (folder / "pyproject.toml").chmod(0o600)
    run(folder, "git", "init", "-q")
    run(folder, "git", "add", ".")
    run(folder, "git", "commit", "-qm", "Start", GIT_COMMITTER_DATE="@1700000000 +0000")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in (
        *("sh", "git", "tar", "cat", "basename", "mktemp", "mkdir", "chmod", "sed", "rm", "find"),
        *("grep", "sort", "dirname"),
    ):
        (programs / name).symlink_to(shutil.which(name))
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    return folder


def engine(project, name):
    path = project.parent / "bin" / name
    path.write_text(ENGINE)
    path.chmod(0o755)


def image_of(project, *arguments, **environment):
    path = str(project.parent / "bin")
    clean = {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return run(project, project / "tools" / "image", *arguments, PATH=path, **clean | environment)


@pytest.mark.long
def test_an_image_is_built_from_the_last_commit_with_its_time(project):
    engine(project, "buildah")
    (project / "untracked").touch()
    done = image_of(project, "pipeline", "me:1", TORCH="cuda", BASE="base:2")
    lines = done.stdout.splitlines()
    assert (lines[0], done.returncode) == ("buildah", 0)
    options = " ".join(lines)
    revision = run(project, "git", "rev-parse", "HEAD").stdout.strip()
    for expected in (
        "--target pipeline",
        "--build-arg TORCH=cuda",
        "--build-arg BASE=base:2",
        "--build-arg VERSION=1.2.3",
        f"--build-arg REVISION={revision}",
        "--build-arg SOURCE_DATE_EPOCH=1700000000",
        "--timestamp 1700000000 --tag me:1 .",
    ):
        assert expected in options
    # The same modes, whatever they are in the checkout.
    assert lines[-3:] == ["pyproject.toml 644", "tools/image 755", "[global]"]
    assert "uncommitted changes are not in it" in done.stderr


def test_where_pip_finds_packages_holds_for_the_build(project, tmp_path):
    """Addresses as a secret, a folder as a mount, and neither as an argument."""
    engine(project, "podman")
    done = image_of(
        project,
        "pipeline",
        "me:1",
        PIP_INDEX_URL="https://me:SECRET@index/simple",
        PIP_EXTRA_INDEX_URL="https://more/simple file:///here/simple",
        PIP_FIND_LINKS=str(tmp_path),
        SSL_CERT_FILE="/certificates.pem",
    )
    arguments, _, secret = done.stdout.partition("[global]\n")
    assert secret.split() == [
        *("index-url", "=", "https://me:SECRET@index/simple"),
        *("extra-index-url", "=", "https://more/simple"),
    ]
    assert "SECRET" not in arguments
    assert f"--build-context\nwheels={tmp_path}\n" in arguments
    assert "--secret\nid=ca,src=/certificates.pem\n" in arguments


@pytest.mark.long
def test_docker_comes_first_and_rewrites_times(project):
    for name in ("docker", "podman", "buildah"):
        engine(project, name)
    lines = image_of(project, "pipeline", "me:1").stdout.splitlines()
    assert lines[:3] == ["docker", "buildx", "build"]
    assert "type=docker,rewrite-timestamp=true" in lines
    assert image_of(project, "sbom", "me:1", ENGINE="buildah").stdout.startswith("buildah\n")


def test_files_of_a_target_go_to_a_folder(project):
    engine(project, "buildah")
    lines = image_of(project, "sbom", "none", OUTPUT="/there").stdout.splitlines()
    assert "type=local,dest=/there" in lines
    assert "--timestamp" not in lines


def test_a_machine_without_an_engine_is_refused(project):
    assert "no docker, podman or buildah is installed" in one_line(
        image_of(project, "pipeline", "me:1")
    )
