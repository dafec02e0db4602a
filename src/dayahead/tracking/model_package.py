"""A saved model as MLflow stores and serves it: with its code, without a pickle."""

import warnings
from importlib.metadata import requires
from pathlib import Path

import mlflow.pyfunc
import pandas as pd
from mlflow import types
from mlflow.models import ModelSignature
from mlflow.types.schema import AnyType, Array, Object, Property

OPTIONS = [
    types.ParamSpec("top_k", types.DataType.long, 10),
    types.ParamSpec("cold_start", types.DataType.string, "refuse"),
    types.ParamSpec("exclude_seen", types.DataType.boolean, False),
]
_RECOMMENDATION = Object(
    [
        Property("item", AnyType()),
        Property("score", types.DataType.double, required=False),
        Property("error", types.DataType.string, required=False),
    ]
)
SIGNATURE = ModelSignature(
    inputs=types.Schema([types.ColSpec(types.DataType.string, "session")]),
    outputs=types.Schema([types.ColSpec(Array(_RECOMMENDATION))]),
    params=types.ParamSchema(OPTIONS),
)
"""Input: raw item ids, oldest first, separated by commas. Output: the top items of each row, or
why there are none (`error`)."""


def package_model(target: Path, folder: Path, code: Path, package: Path) -> Path:
    """Write a models-from-code pyfunc of `folder`, served by `code`, into `target`.

    Args:
        target: the new folder.
        folder: the saved model.
        code: the file that MLflow runs to serve it.
        package: the folder of our code, which `code` imports.

    Raises:
        MlflowException: `code` sets no model.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the signature is SIGNATURE, not type hints
        mlflow.pyfunc.save_model(
            target,
            python_model=str(code),
            artifacts={"model": str(folder)},
            signature=SIGNATURE,
            input_example=(
                pd.DataFrame({"session": ["1,2"]}),
                {each.name: each.default for each in OPTIONS},
            ),
            code_paths=[str(package)],
            pip_requirements=[
                line for line in requires("dayahead") or [] if "extra ==" not in line
            ],
        )
    return target
