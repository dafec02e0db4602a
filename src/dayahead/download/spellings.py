"""Ids that a log spells in several ways: 17 in one file, 17.0 or 017 in another."""

import logging
from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.dataset.manifest import QualityResult
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.batches import EXAMPLES
from dayahead.download.convert import Files
from dayahead.download.ids import canonical, odd_spellings, spelled_columns, spelling_cure

_TEXT, _ID, _EVENTS = "text", "id", "events"
_log = logging.getLogger(__name__)


def check_spellings(files: Files, dataset: DatasetConfig) -> list[QualityResult]:
    """Count, by id column, the events whose id the log has in another spelling too.

    They are those of the odd spelling: a fraction, leading zeros, blanks. Columns without such
    events have no result. Held in memory are ids of odd spelling, and the same ids in others.
    """
    found = []
    for column in spelled_columns(dataset):
        if any(each.quality.spellings.get(column) for each in files):
            spellings = _spellings(column, files)
            n_texts = spellings.groupby(_ID)[_TEXT].transform("nunique")
            several = spellings[n_texts > 1]
            if len(several):
                found.append(_result(column, several, files, dataset))
    return found


def _spellings(column: str, files: Files) -> pd.DataFrame:
    """Return the events by file and text, of the ids that are spelled oddly somewhere."""
    odd = [pc.unique(odd_spellings(texts)) for _, texts in _texts(column, files)]
    ids = pc.unique(canonical(pa.chunked_array(odd, pa.string())))
    counts = []
    for number, texts in _texts(column, files):
        found = texts.drop_null().value_counts()
        table = pa.table([found.field("values"), found.field("counts")], [_TEXT, _EVENTS])
        table = table.append_column(_ID, canonical(table[_TEXT]))
        table = table.filter(pc.is_in(table[_ID], value_set=ids))
        counts.append(table.to_pandas().assign(file=number))
    return pd.concat(counts)


def _result(
    column: str, several: pd.DataFrame, files: Files, dataset: DatasetConfig
) -> QualityResult:
    odd = several[several[_TEXT] != several[_ID]]
    of = [each.events for each in files]
    by_file = odd.groupby("file")[_EVENTS].sum()
    worst = max(by_file.index, key=lambda n: by_file[n] / of[n])
    texts = several.groupby(_ID)[_TEXT].unique().sort_index()
    examples = tuple(" and ".join(map(repr, sorted(each))) for each in texts[:EXAMPLES])
    _log.warning(
        "quality: %s: one id in two spellings, such as %s; if they are one, set %s",
        column,
        examples[0],
        spelling_cure(column, dataset),
    )
    return QualityResult(
        f"spellings.{column}",
        int(odd[_EVENTS].sum()),
        sum(of),
        dataset.quality.spellings,
        examples,
        f"{by_file[worst] / of[worst]:.2%} {files[worst].source.file}",
    )


def _texts(column: str, files: Files) -> Iterator[tuple[int, pa.ChunkedArray]]:
    """Yield the ids of each row group, with the number of its source file."""
    for number, conversion in enumerate(files):
        for part in conversion.parts:
            file = pq.ParquetFile(conversion.path(part))
            for group in range(file.num_row_groups):
                yield number, file.read_row_group(group, columns=[column])[column]
