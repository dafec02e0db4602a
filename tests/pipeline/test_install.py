"""tools/install.py installs what the lock names, with uv, from where pip is configured to look."""

import os
import re
from pathlib import Path

import pytest

from support.tools import TOOLS, load_tool

PIN = "torch==2.13.0"
LOCK = f"{PIN} ; sys_platform != 'win32' \\\n    --hash=sha256:00\nclick==8.5.1 --hash=sha256:11\n"
FAKE = """#!/bin/sh
echo "$*" >> calls
for word; do last=$word; done
cat "$last" > last 2>/dev/null
env > environment
case $* in {fails}) printf "error: refused\n  cause: {why}\n" >&2; exit 2;; esac
cat >&2 <<'END'
Using Python 3.11.7 environment at: v
Resolved 2 packages in 35ms
   Building merlin-core==23.8.0
Downloading torch (182.9MiB)
 Downloaded torch
      Built merlin-core==23.8.0
Prepared 2 packages in 2.46s
Installed 2 packages in 211ms
 + click==8.5.1
END
"""


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def installation(tmp_path, monkeypatch, capsys):
    """Install LOCK with a uv that fails at the calls `fails`; return status, calls and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(TOOLS))
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    program(tmp_path / "bin" / "nvidia-smi", "#!/bin/sh\nexit 9\n")
    tool = load_tool("install")
    (tmp_path / "lock.txt").write_text(LOCK)

    def install(*options, fails="never", why="No solution found"):
        tool.pip_settings.cache_clear()
        (tmp_path / "calls").unlink(missing_ok=True)
        uv = program(tmp_path / "bin" / "uv", FAKE.format(fails=fails, why=why))
        monkeypatch.setattr(tool, "UV", uv)
        monkeypatch.setattr("sys.argv", ["install.py", "env", "lock.txt", *options])
        status = tool.main()
        printed = "".join(capsys.readouterr())
        return status, (tmp_path / "calls").read_text().splitlines(), printed

    install.tool = tool
    return install


def files_in(call):
    return [Path(path).name for path in re.findall(r"--requirement (\S+)", call)]


def test_without_a_gpu_torch_is_a_cpu_build_and_cuda_does_not_come(installation):
    status, (torch, rest), _ = installation()
    assert status == 0
    assert torch.endswith(f"{PIN}+cpu")
    assert files_in(rest) == ["lock.txt"]


def test_versions_that_the_project_overrides_are_not_those_of_a_peer(installation):
    _, calls, _ = installation()
    assert all(call.startswith("--project / pip install ") for call in calls)


def test_nothing_but_the_lock_is_installed_or_builds(installation):
    _, calls, _ = installation()
    assert "--require-hashes" in calls[-1]
    for call in calls:
        assert {"--no-deps", "--require-build-hashes"} <= set(call.split())
        assert re.search(r"--build-constraints \S+/requirements-setup.txt", call)


def test_without_a_cpu_build_at_hand_torchs_own_index_is_asked(installation):
    status, calls, printed = installation(fails="*+cpu*")
    assert status == 0
    assert calls[1].endswith(f"--torch-backend cpu {PIN}")
    assert files_in(calls[2]) == ["lock.txt"]
    assert "error" not in printed


def test_if_no_cpu_build_is_in_reach_the_ordinary_one_comes_with_cuda(installation):
    status, calls, printed = installation(fails="*+cpu*|*torch-backend*")
    assert status == 0
    assert files_in(calls[-1]) == ["lock.txt", "requirements-cuda.txt"]
    assert "No CPU build of torch is in reach" in printed


def test_a_cpu_build_that_was_asked_for_is_not_replaced(installation):
    status, calls, printed = installation("--torch", "cpu", fails="*+cpu*|*torch-backend*")
    assert status == 2
    assert len(calls) == 2
    assert "error: refused" in printed


def test_a_full_disk_is_no_reason_to_take_gigabytes_more(installation):
    status, calls, printed = installation(fails="*+cpu*", why="No space left on device")
    assert (status, len(calls)) == (2, 1)
    assert printed.splitlines() == ["error: refused", "  cause: No space left on device"]


def test_an_index_that_is_not_reached_is_an_error(installation):
    status, calls, _ = installation(fails="*", why="Failed to fetch")
    assert (status, len(calls)) == (2, 1)


def test_with_a_gpu_cuda_comes(installation, tmp_path):
    program(tmp_path / "bin" / "nvidia-smi", "#!/bin/sh\necho GPU 0: NVIDIA\n")
    _, (call,), _ = installation()
    assert files_in(call) == ["lock.txt", "requirements-cuda.txt"]
    assert " --constraints " in call
    assert (tmp_path / "last").read_text() == "torch===2.13.0"  # no 2.13.0+cpu that lies ready


@pytest.mark.parametrize(("version", "n_calls"), [("2.13.0", 1), ("2.13.0+cpu", 2)])
def test_a_later_set_up_keeps_the_kind_of_torch(installation, tmp_path, version, n_calls):
    """On a login node, say, which has no GPU, while those that run the jobs have."""
    (tmp_path / f"env/lib/python3.11/site-packages/torch-{version}.dist-info").mkdir(parents=True)
    _, calls, _ = installation()
    assert len(calls) == n_calls


def test_what_takes_time_is_printed_and_the_rest_is_not(installation):
    lines = ["Building merlin-core==23.8.0", "Downloading torch (182.9MiB)", "Installed 2 packages"]
    _, _, printed = installation()
    assert [line.split(" in ")[0].strip() for line in printed.splitlines()] == lines * 2


def test_a_failure_is_printed_and_returned(installation):
    status, _, printed = installation(fails="*--require-hashes*")
    assert (status, printed.splitlines()[-2:]) == (
        2,
        ["error: refused", "  cause: No solution found"],
    )


def carried(folder):
    lines = (folder / "environment").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line.startswith(("UV_", "SSL_", "ALL_")))


def test_uv_looks_where_pip_is_configured_to_look(installation, tmp_path, monkeypatch):
    """As `pip config list` prints it, of files and environment variables."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    listed = r"""
:env:.proxy='http://proxy:8080'
global.cert='/ca.pem'
global.find-links='\n/a\n/b'
global.index-url='https://one/simple'
install.extra-index-url='https://two/simple https://three/simple'
list.index-url='https://other/simple'
"""
    pip = program(tmp_path / "python", f"#!/bin/sh\ncat <<'END'{listed}END\n")
    monkeypatch.setattr("sys.executable", str(pip))
    installation()
    assert carried(tmp_path) == {
        "UV_DEFAULT_INDEX": "https://one/simple",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INDEX": "https://two/simple https://three/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_SYSTEM_CERTS": "true",
        "SSL_CERT_FILE": "/ca.pem",
        "ALL_PROXY": "http://proxy:8080",
    }


def test_environment_variables_win(installation, tmp_path, monkeypatch):
    """Those of pip over its files, and those of uv over both."""
    (tmp_path / "pip.conf").write_text("[install]\nindex-url = https://one\nfind-links = /a\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://two")
    monkeypatch.setenv("UV_FIND_LINKS", "/mine")
    installation()
    assert carried(tmp_path)["UV_DEFAULT_INDEX"] == "https://two"
    assert carried(tmp_path)["UV_FIND_LINKS"] == "/mine"


@pytest.mark.parametrize("value", ["1", "0"])
def test_pip_without_an_index_means_uv_without_one(installation, monkeypatch, value):
    monkeypatch.setenv("PIP_NO_INDEX", value)
    _, calls, _ = installation()
    assert {"--no-index" in call.split() for call in calls} == {value == "1"}
