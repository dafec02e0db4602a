"""The model that MLflow serves, loaded from this file without a pickle.

MLflow runs this file whenever a model is packaged, so what only serving needs is imported when
a model is loaded.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext
from pydantic import TypeAdapter, ValidationError

from dayahead.core.errors import DataError, DayaheadError
from dayahead.serve.request import parse_ids


class ServedModel(PythonModel):  # type: ignore[misc]
    """Recommendations for raw item ids, or for events of models with side features."""

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
        """Return the top items of each row.

        A row has a `session` of ids, oldest first, comma-separated, or `events` and perhaps `past`,
        lists of objects with item_id, event_time and the features that the model reads. `params`
        are those of `Recommender.recommend`. A row that cannot be answered has one entry, its
        `error`; the others of the batch are answered.
        """
        options = {"top_k": 10, **(params or {})}
        return [self._row(row, options) for row in model_input.to_dict("records")]

    def _row(self, row: dict[str, Any], options: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            events = _given(row.get("events"))
            if events is not None or "session" not in row:
                past = _given(row.get("past"))
                top = self._recommender.recommend_after(
                    self._table("events", events or []),
                    past=None if past is None else self._table("past", past),
                    **options,
                )
            else:
                top = self._recommender.recommend(parse_ids(row["session"]), **options)
        except DayaheadError as error:
            return [{"item": None, "score": None, "error": str(error)}]
        return [{"item": item, "score": score} for item, score in top]

    def _table(self, name: str, events: Sequence[Mapping[str, Any]]) -> pa.Table:
        from dayahead.serve.answers import table_of
        from dayahead.serve.messages import Event

        try:
            found = TypeAdapter(list[Event]).validate_python(events)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, (name, *first["loc"])))
            raise DataError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None
        return table_of(self._recommender, found)


def _given(events: Any) -> list[Any] | None:  # noqa: ANN401
    """Return the events of a cell, None for an empty one, which pandas has as NaN."""
    return None if events is None or isinstance(events, float) else [*events]


set_model(ServedModel())
