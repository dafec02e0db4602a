"""Whatever is on a remote: one entry is refused, the others come, and nothing else is written."""

import random
import threading
import time
from pathlib import Path

import pytest

from dayahead.core.cache import Cache
from dayahead.sharing.pull import pull
from dayahead.sharing.push import push
from dayahead.sharing.remote import PREFIX
from support.dvc_remotes import EVALUATIONS, FITS, content, folder_remote, put
from support.hostile_remotes import CASES, Victim, listed

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
MAY_COME = {
    *("duplicate keys", "extra files", "names of one file", "no permission"),
    *("a file that changes", "a file that vanishes"),
    *("a planted link: partial", "a planted link: damaged"),
}
"""Cases in which the entry may be whole: it comes as it was pushed, or is refused."""
FAST = (
    *("a size below the file's", "a file of 3 GiB", "names above the entry", "absolute names"),
    *("a link to /dev/zero", "a pipe", "a manifest that is a pipe", "a manifest of 3 GiB"),
    *("a deep list", "an empty manifest", "names that differ by case", "a planted link: partial"),
)
MAX_READ = 32 << 20
"""Bytes that a pull of three small entries may read, its own code and the listing included."""
MAX_SECONDS = 60


def bytes_read():
    """Bytes that this process has read so far, from files and pipes."""
    return int(Path("/proc/self/io").read_text().split()[1])


def within(seconds, function, *arguments):
    """Call a function in a thread, which may hang."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*arguments)), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it hangs, or has raised"
    return found[0]


def pull_hostile(tmp_path, case, seed):
    """Pull from a remote with one hostile entry; return the reason for which it is refused."""
    stream = random.Random(f"{case} {seed}")
    here, there, outside = (tmp_path / name for name in ("here", "there", "outside"))
    outside.mkdir()
    (outside / "mine.json").write_text("mine")
    kinds = (FITS, EVALUATIONS, "windows")
    entries = [put(here, kind, f"{kind}-1", x=f"1 {kind}", y=f"2 {kind}") for kind in kinds]
    push(here, folder_remote(tmp_path), entries)
    bad = stream.choice(entries)
    CASES[case](Victim(tmp_path.joinpath("store", *PREFIX), *bad, outside, stream))
    before, n_before, begin = listed(outside), bytes_read(), time.monotonic()
    report = within(MAX_SECONDS, pull, there, folder_remote(tmp_path), entries, [])
    assert bytes_read() - n_before < MAX_READ
    assert time.monotonic() - begin < MAX_SECONDS
    assert listed(outside) == before
    own = {"here", "there", "outside", "store", "project", "site"}
    assert {path.name for path in tmp_path.iterdir()} <= own
    for entry in entries:
        if entry != bad:
            assert content(there, entry) == content(here, entry)
    found = content(there, bad)
    assert set(report.refused) == (set() if found else {bad})
    assert found is None or case in MAY_COME
    own = {name: text for name, text in (found or {}).items() if not name.startswith("copy-")}
    assert own in ({}, content(here, bad))
    for kind in kinds:
        assert not [path for path in (there / kind).glob(".*") if not path.is_symlink()]
        assert Cache(there / kind).keys() == ([] if kind == bad[0] and not found else [f"{kind}-1"])
    return report.refused.get(bad)


@pytest.mark.parametrize("case", FAST)
def test_a_hostile_entry_is_refused_in_one_line(tmp_path, case):
    reason = pull_hostile(tmp_path, case, 0)
    if case not in MAY_COME:
        assert reason.isprintable()
        assert len(reason) < 400


@pytest.mark.slow
def test_a_hundred_hostile_remotes(tmp_path_factory):
    refused = whole = 0
    seeds = range(1, 4)
    for case in CASES:
        for seed in seeds:
            reason = pull_hostile(tmp_path_factory.mktemp("remote"), case, seed)
            assert reason is None or reason.isprintable()
            refused += reason is not None
            whole += reason is None
    assert refused + whole == len(CASES) * len(seeds) > 100
    assert whole <= len(MAY_COME) * len(seeds)
