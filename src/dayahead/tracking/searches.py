"""A search in MLflow: a run of the study, with the pipeline runs of its trials nested in it."""

from collections.abc import Mapping
from typing import Any

from mlflow import entities

from dayahead.tracking.outbox import never_raising
from dayahead.tracking.store import Store
from dayahead.tracking.uploader import ID_TAG, NAME_TAG, PARENT_TAG, STAGE_TAG

EXPERIMENT_TAG = "dvc.exp_name"


class SearchRun:
    """The run of a study; no method raises, and each may be called again."""

    def __init__(self, experiment: str, study: str, params: Mapping[str, Any]) -> None:
        self.store = Store()
        self.study = study
        self.run: str | None = None
        with never_raising("the study is not recorded"):
            self._open(experiment, params)

    def _open(self, experiment: str, params: Mapping[str, Any]) -> None:
        client = self.store.client
        self.experiment_id = self.store.experiment_id(experiment)
        tags = {ID_TAG: f"search-{self.study}", NAME_TAG: self.study, STAGE_TAG: "search"}
        with self.store.lock():
            found = self._search(f"tags.`{ID_TAG}` = '{tags[ID_TAG]}'")
            run = found[0] if found else client.create_run(self.experiment_id, tags=tags)
        self.run = str(run.info.run_id)
        values = [entities.Param(key, str(value)) for key, value in params.items()]
        client.log_batch(self.run, params=values)
        client.update_run(self.run, status="RUNNING")

    def _search(self, condition: str) -> list[entities.Run]:
        return list(self.store.client.search_runs([self.experiment_id], condition, max_results=10))

    def log_trial(self, number: int, experiment: str, metrics: Mapping[str, float]) -> None:
        """Record a trial's metrics at the step of its number; nest its pipeline run."""
        with never_raising("the trial is not recorded"):
            if self.run is None:
                return
            known = self.store.client.get_run(self.run).data.tags
            if f"trial.{number}" not in known:
                points = [
                    entities.Metric(name, value, 0, number) for name, value in metrics.items()
                ]
                tag = entities.RunTag(f"trial.{number}", experiment)
                self.store.client.log_batch(self.run, metrics=points, tags=[tag])
            self.link(experiment)

    def link(self, experiment: str) -> None:
        """Nest the pipeline run of a DVC experiment in the study's."""
        with never_raising("the trial's run is not linked"):
            if self.run is None:
                return
            condition = (
                f"tags.`{EXPERIMENT_TAG}` = '{experiment}' AND tags.`{STAGE_TAG}` = 'pipeline'"
            )
            for found in self._search(condition):
                self.store.client.set_tag(found.info.run_id, PARENT_TAG, self.run)

    def end(self, metrics: Mapping[str, float]) -> None:
        """Record figures of the whole study, and that it has ended."""
        with never_raising("the end of the study is not recorded"):
            if self.run is None:
                return
            points = [entities.Metric(name, value, 0, 0) for name, value in metrics.items()]
            self.store.client.log_batch(self.run, metrics=points)
            self.store.client.set_terminated(self.run)
