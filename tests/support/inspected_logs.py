"""Small files, inspected, and the data set that what is written describes."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dayahead.dataset.schema import DatasetConfig, load_dataset
from dayahead.inspection.finding import Finding
from dayahead.inspection.log import Inspection, inspect_log


@dataclass(frozen=True)
class Inspected:
    """What was found and written."""

    found: Inspection
    dataset: DatasetConfig

    def finding(self, key: str) -> Finding:
        """The only finding of a key."""
        (found,) = [each for each in self.found.findings if each.key == key]
        return found


def inspected(folder: Path, content: str | bytes, *more: str, name: str = "log.csv") -> Inspected:
    """Write files, inspect them, and load the data set file."""
    paths = []
    for number, each in enumerate((content, *more)):
        paths.append(folder / (f"{number}-{name}" if more else name))
        paths[-1].write_bytes(each.encode() if isinstance(each, str) else each)
    found = inspect_log([str(path) for path in paths], "mine")
    (folder / "mine.yaml").write_text(found.text)
    return Inspected(found, load_dataset("mine", folder))


def log_lines(*, n: int = 120, row: str, header: str = "", sep: str = "\n") -> str:
    """Lines of visits of three clicks each, one a minute; a visit every two hours.

    The row may name n (number of the row), visit, user (of seven), item (of eleven), second (Unix
    time from 2024-03-04 on), and when (a datetime).
    """
    lines = [header] if header else []
    for number in range(n):
        visit = number // 3
        second = 1_709_510_400 + visit * 7200 + number % 3 * 60
        lines.append(
            row.format(
                n=number,
                visit=visit,
                user=100 + visit % 7,
                item=500 + number * number % 11,
                second=second,
                when=datetime.fromtimestamp(second, UTC),
            )
        )
    return sep.join(lines) + sep
