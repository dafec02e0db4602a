"""NVTabular, the engine that computes features, adapted to current Dask; no other file imports it.

Merlin 23.8, the last release, was written for Dask 2023. The names that it imports and Dask has
moved or no longer has are put back here, before Merlin is imported. The two that are gone belong to
readers and operators that nothing of ours uses.
"""

import sys
import warnings
from types import ModuleType

import dask.dataframe as dd
from dask.dataframe import core, dispatch


def _is_gone(*_: object, **__: object) -> None:
    raise NotImplementedError("what this function of Merlin needs is no longer in Dask")


def _adapt_dask() -> None:
    core.hash_object_dispatch = dispatch.hash_object_dispatch
    core.DataFrame, core.Series = dd.DataFrame, dd.Series
    core.new_dd_object = _is_gone
    optimize = ModuleType("dask.dataframe.optimize")
    optimize.optimize = _is_gone  # type: ignore[attr-defined]
    sys.modules.setdefault(optimize.__name__, optimize)


_adapt_dask()
with warnings.catch_warnings():
    # Of stringcase, below Merlin's schema, when it is first compiled.
    warnings.filterwarnings("ignore", ".*invalid escape sequence")
    from merlin.core import has_gpu

    # Where NVML finds a device Merlin would import cuDF, and names that cuDF has no longer.
    has_gpu.HAS_GPU = False
    import nvtabular
    from merlin.dag import ColumnSelector, executors
    from merlin.io import Dataset
    from merlin.schema import ColumnSchema, Schema, Tags
    from merlin.schema.io.tensorflow_metadata import TensorflowMetadata
    from nvtabular.ops import Clip, FillMissing, LogOp, Normalize, Operator, StatOperator
    from nvtabular.workflow.node import WorkflowNode

__all__ = [
    "Clip",
    "ColumnSchema",
    "ColumnSelector",
    "Dataset",
    "FillMissing",
    "LogOp",
    "Normalize",
    "Operator",
    "Schema",
    "StatOperator",
    "Tags",
    "TensorflowMetadata",
    "Workflow",
    "WorkflowNode",
]


executors.ensure_optimize_dataframe_graph = lambda ddf: ddf  # Dask does that by itself


class Workflow(nvtabular.Workflow):  # type: ignore[misc]
    """A graph of operators."""

    def __init__(self, output_node: WorkflowNode) -> None:
        super().__init__(output_node)
        formats = self.executor._executor.target_format
        self.executor._executor = _Partition()
        self.executor._executor.target_format = formats


class _Partition(executors.LocalExecutor):  # type: ignore[misc]
    """What transforms a partition: of this file, so that a worker of Dask is adapted first."""
