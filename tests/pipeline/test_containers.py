"""containers/: its files name what exists, and leave out what no image may hold.

The image itself is built and run by `make image-test`.
"""

import json
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from docker.utils.build import exclude_paths
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
CONTAINERS = ROOT / "containers"
KUBERNETES = CONTAINERS / "kubernetes"
CONTAINERFILE = (CONTAINERS / "Containerfile").read_text(encoding="utf-8")
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8")
SCRIPTS = [
    *(ROOT / "tools" / name for name in ("alone", "image", "image-test")),
    *(CONTAINERS / name for name in ("entrypoint", "new-secrets", "ngc-job")),
    *CONTAINERS.glob("install-*"),
]
PRIVATE = [
    *(".dvc/cache/files/md5/00/1", ".dvc/config.local", ".dvc/tmp/rwlock", ".git/config", ".env"),
    *(".dayahead/fits/1", ".venv/bin/python", "build/image/sbom.json", "data/raw/events-0.parquet"),
    *("containers/secrets/pgpass", "datasets/log.csv", "id_rsa", "mlartifacts/1", "mlflow.db"),
    *("models/config.json", "results/aod.json", "stages/.train.py.swp", "tools/.env"),
    *("src/dayahead/__pycache__/a.pyc", "src/dayahead.egg-info/PKG-INFO"),
]
"""What may be in a checkout, and in no image."""
NOT_IN_IMAGE = {".ci/run"}
OWN = ("dvc.lock", "own_models.py", "datasets/own.yaml")
"""What a user may commit besides."""


def read(path):
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def instructions():
    """Keyword and words of each instruction, lines joined."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", CONTAINERFILE, flags=re.M))
    return [(line.split()[0], line.split()[1:]) for line in text.splitlines() if line.strip()]


def tracked():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


def stages():
    return [words[words.index("AS") + 1] for word, words in instructions() if word == "FROM"]


def test_the_image_runs_without_root():
    for stage in ("pipeline", "development"):
        text = CONTAINERFILE.split(f"AS {stage}\n")[1].split("\nFROM ")[0]
        assert re.findall(r"^USER (.+)$", text, re.M) == ["1000:1000"]


def test_an_image_holds_what_git_tracks_and_nothing_else(tmp_path):
    files = {*tracked(), *OWN}
    for name in [*files, *PRIVATE]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    patterns = [line for line in IGNORED.splitlines() if line and not line.startswith("#")]
    kept = exclude_paths(str(tmp_path), patterns, dockerfile="containers/Containerfile")
    assert {name for name in kept if (tmp_path / name).is_file()} == files - NOT_IN_IMAGE


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_programs_without_syntax_errors(script):
    assert script.stat().st_mode & stat.S_IXUSR
    shell = script.read_text(encoding="utf-8").splitlines()[0].removeprefix("#!").split()
    subprocess.run([*shell, "-n", script], check=True)


def secrets_of(folder):
    shutil.copy(CONTAINERS / "new-secrets", folder)
    return subprocess.run([folder / "new-secrets"], capture_output=True, text=True, check=False)


def test_passwords_are_written_once_for_one_user(tmp_path):
    assert secrets_of(tmp_path).returncode == 0
    files = list((tmp_path / "secrets").iterdir())
    texts = {file.name: file.read_text() for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    password = texts["postgres-password"]
    assert re.fullmatch(r"[A-Za-z0-9]{32}", password)
    assert texts["pgpass"] == f"postgres:5432:mlflow:mlflow:{password}\n"
    [identity] = json.loads(texts["s3.json"])["identities"]
    for value in identity["credentials"][0].values():
        assert f" = {value}\n" in texts["aws-credentials"]
    again = secrets_of(tmp_path)
    assert again.returncode == 1
    assert again.stderr.startswith(f"error: {tmp_path}/secrets is there already")
    assert (tmp_path / "secrets" / "postgres-password").read_text() == password


def test_services_get_the_secrets_that_are_written(tmp_path):
    assert secrets_of(tmp_path).returncode == 0
    compose = read(CONTAINERS / "compose.yaml")
    files = {name: each["file"] for name, each in compose["secrets"].items()}
    assert files == {
        path.name: f"./secrets/{path.name}" for path in (tmp_path / "secrets").iterdir()
    }
    for service in compose["services"].values():
        named = set(re.findall(r"/run/secrets/([\w.-]+)", str(service)))
        assert named == set(service.get("secrets", []))
        without_digest = re.sub(r"@sha256:[0-9a-f]{64}\b", "", str(service))
        assert not re.search(r"password=|:[^/@\s']+@", without_digest, re.I)


def test_services_are_open_to_this_machine_only():
    services = read(CONTAINERS / "compose.yaml")["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_services_have_versions_and_mlflow_that_of_the_lock():
    images = {
        name: each["image"] for name, each in read(CONTAINERS / "compose.yaml")["services"].items()
    }
    assert [image for image in images.values() if not re.search(r":[^/:]*\w}?$", image)] == []
    assert [image for image in images.values() if "latest" in image or "minio" in image] == []
    [version] = re.findall(r"^mlflow==(\S+)", (ROOT / "requirements.txt").read_text(), re.M)
    assert images["mlflow"] == images["buckets"] == f"ghcr.io/mlflow/mlflow:v{version}-full"


def test_services_use_volumes_buckets_and_services_that_exist():
    compose = read(CONTAINERS / "compose.yaml")
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (CONTAINERS / source).is_file()
    buckets = services["buckets"]["command"][2:]
    [artifacts] = re.findall(
        r"--artifacts-destination=s3://(\w+)", str(services["mlflow"]["command"])
    )
    [remote] = re.findall(r"s3://(\w+)", (ROOT / "docs" / "containers.md").read_text())
    assert {artifacts, remote} == set(buckets)


def manifests(kustomization):
    """All objects of a kustomization."""
    found = []
    for name in read(kustomization)["resources"]:
        path = (kustomization.parent / name).resolve()
        assert path.exists()
        found += manifests(path / "kustomization.yaml") if path.is_dir() else [read(path)]
    return found


@pytest.fixture
def objects():
    """By kind."""
    return {
        each["kind"]: each for each in manifests(KUBERNETES / "distributed" / "kustomization.yaml")
    }


def test_every_manifest_is_listed(objects):
    files = {path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml"}
    assert len(files) == len(objects)


def pods(objects):
    """Pod specifications with their containers and scripts."""
    nightly = objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [patch] = objects["TrainJob"]["spec"]["runtimePatches"]
    [job] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    train = job["template"]["spec"]["template"]["spec"]
    return [
        (nightly, nightly["containers"][0]["args"]),
        (train, objects["TrainJob"]["spec"]["trainer"]["args"]),
    ]


def test_pods_are_restricted_and_have_time_to_end(objects):
    for pod, _ in pods(objects):
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["terminationGracePeriodSeconds"] > 60


def test_pods_mount_the_claim_where_the_image_works(objects):
    for pod, _ in pods(objects):
        mounts = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
        volumes = {each["name"]: each for each in pod["volumes"]}
        assert set(volumes) == set(mounts.values())
        assert {"/project", "/tmp", "/dev/shm"} == set(mounts)  # noqa: S108  in a container
        claim = volumes[mounts["/project"]]["persistentVolumeClaim"]["claimName"]
        assert claim == objects["PersistentVolumeClaim"]["metadata"]["name"]
    assert "WORKDIR /project\n" in CONTAINERFILE


def test_scripts_of_pods_run_alone_and_wait_when_they_are_stopped(objects):
    for _, args in pods(objects):
        *before, flags, script = args
        assert (before[-1], flags) == ("sh", "-ec")
        subprocess.run(["sh", "-n", "-c", script], check=True)
        assert script.startswith("trap : INT TERM\n")
        for line in script.splitlines():
            words = shlex.split(line)
            if "dvc" in words[:2] and "config" not in words:
                assert "tools/alone" in [*before, *words]


def test_the_nightly_run_uses_the_image_that_is_replaced(objects):
    [container] = objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"][
        "containers"
    ]
    [image] = read(KUBERNETES / "kustomization.yaml")["images"]
    assert container["image"] == image["name"]
    assert objects["TrainJob"]["spec"]["trainer"]["image"].startswith(f"{image['newName']}:")


def test_actions_and_images_are_pinned_by_digest():
    """MLflow's image follows the lock: its version is pinned, its digest is not known here."""
    actions = [
        use
        for path in (ROOT / ".github" / "workflows").glob("*.yaml")
        for use in re.findall(r"uses: (.*)", path.read_text())
    ]
    assert actions
    assert [use for use in actions if not re.search(r"@[0-9a-f]{40}  # v\d", use)] == []
    services = read(CONTAINERS / "compose.yaml")["services"].values()
    images = [each["image"] for each in services if "dayahead" not in each["image"]]
    images += re.findall(r"^ARG BASE=(.*)", CONTAINERFILE, re.M)
    named = [image for image in images if not re.search(r"@sha256:[0-9a-f]{64}$", image)]
    assert {image.split(":")[0] for image in named} == {"ghcr.io/mlflow/mlflow"}
