"""A saved model with the code that serves it: a plain folder that MLflow loads without a pickle."""

import warnings
from importlib.metadata import requires
from pathlib import Path

import mlflow.pyfunc
import pandas as pd
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType, Array, Object, Property

import dayahead

SESSION_COLUMN = "session"
TOP_K = ParamSpec("top_k", DataType.long, 10)
SIGNATURE = ModelSignature(
    inputs=Schema([ColSpec(DataType.string, SESSION_COLUMN)]),
    outputs=Schema(
        [ColSpec(Array(Object([Property("item", AnyType()), Property("score", DataType.double)])))]
    ),
    params=ParamSchema([TOP_K]),
)
"""In: raw item ids, oldest first, separated by commas. Out: per row the best items and scores."""


def pack_model(target: Path, folder: Path, code: Path, example: str) -> Path:
    """Write a models-from-code pyfunc of `folder`, served by `code`, into `target`.

    Raises:
        MlflowException: `code` sets no model.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the signature stands above, not in type hints
        mlflow.pyfunc.save_model(
            target,
            python_model=str(code),
            artifacts={"model": str(folder)},
            signature=SIGNATURE,
            input_example=(pd.DataFrame({SESSION_COLUMN: [example]}), {TOP_K.name: TOP_K.default}),
            code_paths=[str(Path(dayahead.__file__).parent)],
            pip_requirements=_requirements(),
        )
    return target


def _requirements() -> list[str]:
    return [line for line in requires(dayahead.__name__) or [] if "extra ==" not in line]
