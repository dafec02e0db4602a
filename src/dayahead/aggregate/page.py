"""results/report.html: one self-contained page that summarizes a run."""

from typing import Final

from dayahead.aggregate.conclusions import (
    conclusions,
    list_conclusion,
    plain_answer,
    sign_of,
    slice_conclusion,
)
from dayahead.aggregate.environment import page_environment
from dayahead.aggregate.figures import data_charts, metric_charts, training_charts
from dayahead.aggregate.findings import Findings
from dayahead.config.changed_settings import changed_settings
from dayahead.config.metric_names import title_of
from dayahead.core.phases import idle_seconds
from dayahead.outputs.evidence_names import plain_name
from dayahead.statistics.differences import BaselineComparison

_N_SHOWN: Final = 15
"""Number of features in the table of evidence that are not folded away."""


def render_page(findings: Findings) -> str:
    """Render the report of a run; the same findings give the same text."""
    page = page_environment()
    page.filters |= {"metric": title_of, "sign": sign_of, "plain": plain_name}
    rival = _rival(findings)
    return page.get_template("page.html.j2").render(
        found=findings,
        model=findings.architecture,
        summary=findings.summary,
        settings=findings.settings,
        listing=findings.listing,
        answer=plain_answer(findings, rival),
        conclusions=list(conclusions(findings)),
        slice_conclusion=slice_conclusion(findings, rival),
        list_conclusion=list_conclusion(findings.lists),
        list_table=list(findings.lists.table()),
        rival=rival,
        evidence=sorted(findings.evidence.items(), key=lambda entry: -abs(entry[1])),
        n_shown=_N_SHOWN,
        idle=idle_seconds(findings.profile),
        changed=changed_settings(findings.settings),
        metric_charts=list(metric_charts(findings)),
        training_charts=list(training_charts(findings)),
        data_charts=list(data_charts(findings)),
    )


def _rival(findings: Findings) -> BaselineComparison:
    """Return the best of the others, which groups of targets are compared with."""
    return max(findings.baselines, key=lambda each: each.aod[findings.metric])
