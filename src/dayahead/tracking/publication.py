"""Records of what `dayahead nightly` decided, for the registered model in MLflow."""

from dataclasses import dataclass
from pathlib import Path

from dayahead.config.params import Params
from dayahead.core.project import cache_root
from dayahead.tracking.outbox import Outbox, never_raising
from dayahead.tracking.runs import PACKAGE, StageRun, stage_run


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Changes to the registered model by a decision."""

    number: int
    """Number of the decision in its history, from 1; of two records for a window, the one with the
    higher number says which model is champion."""
    key: str
    """Identifies the decision: if it is recorded twice, it is sent once."""
    model: str
    """Name of the registered model."""
    window: str
    metrics: dict[str, float]
    published: str
    """Name of the new version, empty for none."""
    folder: Path | None
    """Folder of the new version's files."""
    champion: str
    previous: str
    withdrawn: dict[str, str]
    """Versions that were rolled back, with the reason."""


def record_publication(params: Params, publication: Publication, code: Path) -> None:
    """Record a decision and send it, if the server answers; never raises.

    Args:
        params: settings; `tracking.log_model` decides whether the model's files are sent, without
            which there is no version.
        publication: the decision.
        code: the file that serves the model.
    """
    with never_raising("the decision is not recorded"):
        folder = cache_root() / "outbox" / f"nightly-{publication.key}"
        outbox = Outbox(folder / "nightly.jsonl")
        if any(entry["status"] == "FINISHED" for entry in outbox.entries("end")):
            return
        with stage_run("nightly", params, outbox, f"nightly {publication.window}") as run:
            run.log_metrics(publication.metrics)
            run.log_registry(_fields(run, params, publication, code))


def _fields(
    run: StageRun, params: Params, publication: Publication, code: Path
) -> dict[str, object]:
    fields = {name: value for name, value in vars(publication).items() if name != "folder"}
    if publication.folder is None or not params.tracking.log_model:
        return fields
    from dayahead.tracking.model_package import package_model  # with MLflow

    target = run.outbox.new_folder() / "model"
    package_model(target, publication.folder, code, PACKAGE)
    return {**fields, "file": str(target.relative_to(run.outbox.path.parent))}
