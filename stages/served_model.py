"""What MLflow serves: recommendations for raw item ids. Logged as code, never pickled."""

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from dayahead.serve.recommender import Recommender


class ServedModel(PythonModel):  # type: ignore[misc]
    """The saved model behind MLflow's interface."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the folder that was logged with the run."""
        self._recommender = Recommender.load(Path(context.artifacts["model"]))

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> list[list[dict[str, Any]]]:
        """Per row of `session` (ids separated by commas, oldest first) the best items."""
        top_k = int((params or {}).get("top_k", 10))
        return [self._recommended(session, top_k) for session in model_input["session"]]

    def _recommended(self, session: str, top_k: int) -> list[dict[str, Any]]:
        items: list[int | str] = [item.strip() for item in session.split(",")]
        best = self._recommender.recommend(items, top_k)
        return [{"item": item, "score": score} for item, score in best]


set_model(ServedModel())
