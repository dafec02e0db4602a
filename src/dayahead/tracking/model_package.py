"""A saved model as MLflow stores and serves it: with its code, without a pickle."""

import warnings
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import pandas as pd
from mlflow import types
from mlflow.models import ModelSignature
from mlflow.types.schema import AnyType, Array, Object, Property

from dayahead.config.loading import validated
from dayahead.core.columns import EVENT_TIME, ITEM_ID
from dayahead.core.files import read_json
from dayahead.features.input_types import input_types
from dayahead.tracking.library_logs import restrict_library_logs
from dayahead.windows.metadata import Statistics

restrict_library_logs()

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
_OUTPUT = types.Schema([types.ColSpec(Array(_RECOMMENDATION))])
_TIME = "2026-01-01T00:00:00Z"


def interface_of(folder: Path) -> tuple[ModelSignature, pd.DataFrame]:
    """Return what a packaged model takes and returns, and a row of its input as an example.

    A model of item ids reads `session`: raw ids, oldest first, separated by commas. One with side
    features reads `events`, objects as `dayahead serve` takes them, and `past` where it reads past
    events. Values of features have any type here: JSON does not tell 2 from 2.0.
    The output is the top items of each row, or why there are none (`error`).

    Raises:
        KeyError: config.json lacks a part.
        ConfigError: its statistics are damaged.
    """
    config = read_json(folder / "config.json")
    columns = [types.ColSpec(types.DataType.string, "session")]
    row: dict[str, Any] = {"session": "1,2"}
    if config["model"]["features"]:
        statistics = validated(Statistics, config["statistics"], "config.json: statistics")
        raw = [name for name in input_types(statistics) if name not in {ITEM_ID, EVENT_TIME}]
        needed = [Property(ITEM_ID, AnyType()), Property(EVENT_TIME, AnyType())]
        event = Object([*needed, *(Property(name, AnyType(), required=False) for name in raw)])
        columns = [types.ColSpec(Array(event), "events")]
        if config["model"]["past_length"]:
            columns.append(types.ColSpec(Array(event), "past", required=False))
        row = {"events": [{ITEM_ID: 1, EVENT_TIME: _TIME, **dict.fromkeys(raw, 1)}]}
    inputs, params = types.Schema(columns), types.ParamSchema(OPTIONS)
    signature = ModelSignature(inputs=inputs, outputs=_OUTPUT, params=params)
    return signature, pd.DataFrame([row])


def package_model(target: Path, folder: Path, code: Path, package: Path) -> Path:
    """Write a models-from-code pyfunc of `folder`, served by `code`, into `target`.

    Args:
        target: the new folder.
        folder: the saved model.
        code: the file that MLflow runs to serve it.
        package: the folder of our code, which `code` imports.

    Raises:
        MlflowException: `code` sets no model.
        KeyError: config.json of the model lacks a part.
        ConfigError: its statistics are damaged.
    """
    signature, example = interface_of(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the signature is not that of type hints
        mlflow.pyfunc.save_model(
            target,
            python_model=str(code),
            artifacts={"model": str(folder)},
            signature=signature,
            input_example=(example, {each.name: each.default for each in OPTIONS}),
            code_paths=[str(package)],
            pip_requirements=[
                line for line in requires("dayahead") or [] if "extra ==" not in line
            ],
        )
    return target
