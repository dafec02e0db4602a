"""Compile loops to machine code."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import InTreeCacheLocator

from dayahead.core.fingerprints import PACKAGE
from dayahead.core.project import project_root

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function of arrays and numbers by Numba at its first call; later runs reuse it.

    It is compiled again once a file of the same folder with compiled functions has changed: these
    define the NamedTuples that it takes. Sums keep their order (no fast math), so results are the
    same on every run.
    """
    try:
        return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
    except RuntimeError:  # there is no folder to keep it in: each process compiles
        return cast(Function, numba.njit(nogil=True, error_model="numpy")(function))


class ProjectCache(InTreeCacheLocator):  # type: ignore[misc]
    """Keeps what Numba compiled in the main project, for the copies that DVC makes of it too.

    A copy is deleted after its experiment, and compiling takes some fifteen seconds. Numba compares
    hashes of the source, so a copy reuses what the same file of the main project was compiled to;
    a file that differs from it keeps its own.
    """

    _digest: str

    @classmethod
    def from_function(
        cls, py_func: Callable[..., Any], py_file: str
    ) -> "InTreeCacheLocator | None":
        """Locate the cache of a function of this package; None of any other."""
        path = Path(py_file)
        if not path.is_relative_to(PACKAGE):
            return None
        found = super().from_function(py_func, str(_of_project(path)))  # type: ignore[no-untyped-call]
        if found is not None:
            # Of the source that runs: a copy may differ from the project in another file.
            found._digest = _digest(path.parent)
        return cast("InTreeCacheLocator | None", found)

    def get_disambiguator(self) -> str:
        """Return a part of the cache's file names that differs between versions of the source.

        Numba itself notices that the function's own file has changed, but only after it has read
        the old files, which fails once a class that they name is gone.
        """
        return f"{super().get_disambiguator()}-{self._digest}"  # type: ignore[no-untyped-call]


@cache
def _digest(folder: Path) -> str:
    """Hash the files of a folder that define compiled functions."""
    texts = (path.read_bytes() for path in sorted(folder.glob("*.py")))
    digest = hashlib.sha256(b"".join(text for text in texts if b"@compiled" in text))
    return digest.hexdigest()[:8]


def _of_project(path: Path) -> Path:
    """The main project's file of the same name and content, else the file itself."""
    original = project_root() / "src" / path.relative_to(PACKAGE.parent)
    is_same = original.is_file() and original.read_bytes() == path.read_bytes()
    return original if is_same else path


# Not by Numba's environment variable: processes that this one starts may lack this package.
config: Any = numba.config
if not (config.CACHE_LOCATOR_CLASSES or config.CACHE_DIR):  # a user's choice comes first
    config.CACHE_LOCATOR_CLASSES = (
        f"{__name__}.{ProjectCache.__name__},InTreeCacheLocator,UserWideCacheLocator,"
        f"IPythonCacheLocator,ZipCacheLocator"
    )
