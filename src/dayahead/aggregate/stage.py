"""The stage `aggregate`: averages over the windows, the report, the Transformers4Rec export."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from dayahead.aggregate.ages import write_staleness
from dayahead.aggregate.findings import Findings, Folders, find
from dayahead.aggregate.page import render_page
from dayahead.aggregate.segments import write_segments
from dayahead.aggregate.transformers4rec import export_transformers4rec
from dayahead.config.changed_settings import Setting
from dayahead.config.metric_names import packaged_metrics
from dayahead.core.files import write_json, write_text
from dayahead.core.phases import phase
from dayahead.outputs.run import RunResults


def aggregate(
    folders: Folders, cutoffs: Sequence[int], settings: Mapping[str, Setting]
) -> Findings:
    """Write averages, tables by age and segment, the report and the Transformers4Rec export.

    Averages are those of metrics (aod.json) and of what lists show (lists.json).

    The folders are as `train`, `preprocess` and `download` write them; `settings` are params.yaml,
    flat: {"model.n_layer": 2, ...}, for the report.

    Raises:
        DataError: files of the results disagree, or one is damaged.
        WindowError: the windows cannot be read.
    """
    results = folders.results
    with phase("read"):
        own = RunResults.read(results, cutoffs, packaged_metrics(settings))
    findings = find(folders, own, settings)
    write_json(results / "aod.json", asdict(findings.summary))
    write_json(results / "lists.json", asdict(findings.lists))
    write_staleness(results, findings.ageing)
    write_segments(results, [*findings.summary.aod], findings.segments)
    with phase("report"):
        write_text(results / "report.html", render_page(findings))
    export_transformers4rec(results, own.rows, findings.summary)
    return findings
