"""Small logs as csv and JSON lines, and their data-quality results."""

from pathlib import Path
from typing import Any

from dayahead.core.files import read_json
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.stage import download
from support.sources import a_dataset

PRICE = {"price": {"kind": "number", "column": "price"}}


def log_of(folder: Path, *files: str, ending: str = "csv", **sections: Any) -> DatasetConfig:
    """A data set of files with this content, called 0.csv, 1.csv ..."""
    paths = [folder / f"{number}.{ending}" for number in range(len(files))]
    for path, text in zip(paths, files, strict=True):
        path.write_text(text)
    source = {"urls": [str(path) for path in paths], **sections.pop("source", {})}
    return a_dataset(source=source, **sections)


def quality_of(folder: Path, *files: str, **sections: Any) -> dict[str, dict]:
    """Download the files; return the quality results of manifest.json by check."""
    download(log_of(folder, *files, **sections), "mine", folder / "data" / "raw")
    found = read_json(folder / "data/raw/manifest.json")["quality"]
    return {finding.pop("check"): finding for finding in found}


def csv(*rows: str, header: str = "session,item,time") -> str:
    return "\n".join([header, *rows]) + "\n"
