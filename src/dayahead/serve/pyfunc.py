"""The model that MLflow serves, loaded from this file without a pickle."""

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from dayahead.serve.recommender import Recommender


class ServedModel(PythonModel):  # type: ignore[misc]
    """Recommendations for raw item ids."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the saved model that was logged with this file."""
        self._recommender = Recommender.load(Path(context.artifacts["model"]))

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> list[list[dict[str, Any]]]:
        """Return the top items of each row of `session`: ids, oldest first, comma-separated."""
        top_k = int((params or {}).get("top_k", 10))
        sessions = [[item.strip() for item in each.split(",")] for each in model_input["session"]]
        found = [self._recommender.recommend(items, top_k) for items in sessions]
        return [[{"item": item, "score": score} for item, score in top] for top in found]


set_model(ServedModel())
