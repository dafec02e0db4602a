"""The model that MLflow serves, loaded from this file without a pickle.

MLflow runs this file whenever a model is packaged, so what only serving needs is imported when
a model is loaded.
"""

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from dayahead.core.errors import DayaheadError
from dayahead.serve.request import parse_ids


class ServedModel(PythonModel):  # type: ignore[misc]
    """Recommendations for raw item ids."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the saved model that was logged with this file."""
        from dayahead.serve.recommender import Recommender

        self._recommender = Recommender.load(Path(context.artifacts["model"]))

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> list[list[dict[str, Any]]]:
        """Return the top items of each row of `session`: ids, oldest first, comma-separated.

        `params` are those of `Recommender.recommend`. A row that cannot be answered has one entry,
        its `error`; the others of the batch are answered.
        """
        options = {"top_k": 10, **(params or {})}
        return [self._row(session, options) for session in model_input["session"]]

    def _row(self, session: str, options: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            top = self._recommender.recommend(parse_ids(session), **options)
        except DayaheadError as error:
            return [{"item": None, "score": None, "error": str(error)}]
        return [{"item": item, "score": score} for item, score in top]


set_model(ServedModel())
