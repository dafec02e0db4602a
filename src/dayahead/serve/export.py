"""A saved network as a file for other servers: torch.export's pt2, or ONNX."""

import importlib
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dayahead.core.columns import EVENT_TIME, IS_PAST, ITEM_ID, N_RESERVED, UNKNOWN
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.files import folder_written_whole, write_json
from dayahead.core.redaction import redacted
from dayahead.model.checkpoint import StoredModel, load_model
from dayahead.model.exported import ExportedScorer
from dayahead.model.huggingface import BUILD_ERRORS
from dayahead.model.inputs import without_later
from dayahead.model.next_item import NextItemModel
from dayahead.windows.folder import vocabulary_path

Format = Literal["pt2", "onnx"]
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
DESCRIPTION = "export.json"
LARGEST_BATCH = 4_096
TOLERANCE = 1e-5
"""Largest allowed difference of a score, relative to the largest score."""
Batch = tuple[dict[str, Tensor], Int[Tensor, " B"]]
Run = Callable[[Batch], tuple[Int[Tensor, "B K"], Float[Tensor, "B K"]]]


def export_model(models: Path, folder: Path, format_: Format, top_k: int) -> Path:
    """Write a folder: the exported network, its vocabularies and export.json.

    Its scores are compared with those of the saved model before the folder takes its place.

    Args:
        models: folder of the saved model.
        folder: to write; it may not exist yet, or holds an earlier export.
        format_: of the network.
        top_k: items that the exported network returns.

    Returns:
        The file of the network.

    Raises:
        ConfigError: the model cannot be exported, packages are missing, or `folder` holds other
            files.
        DataError: the exported network gives other scores.
    """
    _check_packages(format_)
    check_replaceable(folder)
    stored = load_model(models, to_fit=False)
    candidates = torch.from_numpy(stored.candidates).long()
    scorer = ExportedScorer(_network(stored), candidates, stored.config.known, top_k)
    with folder_written_whole(folder) as aside:
        path = aside / f"model.{format_}"
        try:
            run = _written(scorer, stored, path, format_)
            # Other batch sizes than that of the trace (3): the size must have stayed dynamic.
            for n_sessions in (1, 2, 7):
                _check_scores(run, stored, _trial(scorer, stored, n_sessions))
        except BUILD_ERRORS as error:
            raise _refusal(stored, format_, error) from None
        shutil.copytree(models / "vocabulary", aside / "vocabulary")
        write_json(aside / DESCRIPTION, _description(scorer, stored, format_))
    return folder / path.name


def _check_packages(format_: Format) -> None:
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if format_ == "onnx" and missing:
        raise ConfigError(
            f"export: --format onnx requires {', '.join(missing)}; install them in the project's "
            f"folder with `pip install --group onnx`, or export --format pt2"
        )


def check_replaceable(folder: Path) -> None:
    """Raise ConfigError for a folder that is there and holds no export."""
    if folder.exists() and not (folder / DESCRIPTION).exists():
        raise ConfigError(
            f"{folder}: exists and is no earlier export; name a new folder, which is then written"
        )


def _network(stored: StoredModel) -> NextItemModel:
    if stored.model.network is stored.model:
        return stored.model.network
    name = stored.config.model.architecture
    raise ConfigError(
        f"export: {name} looks its counts up with numpy and numba, which no format of networks "
        f"holds; export a model whose model.architecture is a network, such as gpt2, or serve this "
        f"one with `dayahead serve`"
    )


def _written(scorer: ExportedScorer, stored: StoredModel, path: Path, format_: Format) -> Run:
    """Write the network; return a function that runs it."""
    batch = _trial(scorer, stored, 3)
    size = torch.export.Dim("sessions", min=1, max=LARGEST_BATCH)
    shapes = {"columns": {name: {0: size} for name in batch[0]}, "n_known": {0: size}}
    if format_ == "onnx":
        return _onnx(scorer, batch, shapes, path)
    program = torch.export.export(scorer, batch, dynamic_shapes=shapes, strict=False)
    torch.export.save(program, path)
    module = program.module()
    return lambda given: module(*given)


def _refusal(stored: StoredModel, format_: Format, error: Exception) -> ConfigError:
    """Return the first lines of an exporter's message, without advice for its developers."""
    lines = (line.strip(" -\t") for line in redacted(str(error)).splitlines())
    found = [line.partition(" For more information")[0] for line in lines if line]
    config, reason = stored.config, " ".join(found[:2]) or type(error).__name__
    return ConfigError(
        f"export: {config.model.architecture} with task {config.task.name} cannot be written as "
        f"{format_}: {reason}; serve it with `dayahead serve`, or export another architecture, "
        f"such as gpt2"
    )


def _onnx(scorer: ExportedScorer, batch: Batch, shapes: dict[str, Any], path: Path) -> Run:
    runtime = importlib.import_module("onnxruntime")
    names = [*batch[0], "n_known"]
    program = torch.onnx.export(
        scorer,
        batch,
        dynamo=True,
        dynamic_shapes=shapes,
        input_names=names,
        output_names=["item", "score"],
        verbose=False,
    )
    assert program is not None
    program.save(path)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(given: Batch) -> tuple[Tensor, Tensor]:
        tensors = [*given[0].values(), given[1]]
        known = {each.name for each in session.get_inputs()}  # ONNX drops inputs that are not read
        pairs = zip(names, tensors, strict=True)
        items, scores = session.run(None, {n: t.numpy() for n, t in pairs if n in known})
        return torch.from_numpy(items), torch.from_numpy(scores)

    return run


def _trial(scorer: ExportedScorer, stored: StoredModel, n_sessions: int) -> Batch:
    """Return sessions of every length up to the longest, of known and unknown items."""
    width = max_events(stored)
    generator = torch.Generator().manual_seed(n_sessions)
    n_known = torch.linspace(width, 1, n_sessions).long()
    is_event = torch.arange(width) < n_known[:, None]
    sizes = {name: size + N_RESERVED for name, size in stored.config.sizes.items()}
    columns = {}
    for name in scorer.columns:
        if name in sizes:
            values = torch.randint(UNKNOWN, sizes[name], is_event.shape, generator=generator)
        elif name == IS_PAST:
            values = (torch.arange(width) < (n_known // 2)[:, None]).long()
        else:
            values = torch.randn(is_event.shape, generator=generator)
        columns[name] = values * is_event
    return columns, n_known


@torch.no_grad()
def _check_scores(run: Run, stored: StoredModel, batch: Batch) -> None:
    scorer = stored.model.scorer(torch.from_numpy(stored.candidates).long())
    columns, n_known = batch
    read = without_later(columns, stored.config.known, keeps_own_items=True)
    padded = {name: torch.nn.functional.pad(values, (0, 1)) for name, values in read.items()}
    wanted = scorer({**padded, EVENT_TIME: padded[ITEM_ID]}, n_known)
    items, scores = run(batch)
    column_of = torch.full((N_RESERVED + stored.model.n_items,), -1)
    column_of[stored.candidates] = torch.arange(len(stored.candidates))
    best = wanted.topk(scores.shape[1]).values
    differences = (scores - wanted.gather(1, column_of[items])).abs(), (scores - best).abs()
    largest = max(float(each.max()) for each in differences) / float(wanted.abs().max())
    # Not `largest > TOLERANCE`, which is false for NaN.
    if not largest <= TOLERANCE:
        raise DataError(
            f"export: scores of the exported network differ from those of the saved model by "
            f"{largest:.1e} of the largest; expected at most {TOLERANCE:.0e}. Nothing was written"
        )


def max_events(stored: StoredModel) -> int:
    """Return how many events of a session the exported network reads, past included."""
    config = stored.config
    # One of the max_length events of a session is the target.
    return config.model.past_length + config.statistics.sessions.max_length - 1


def _description(scorer: ExportedScorer, stored: StoredModel, format_: Format) -> dict[str, Any]:
    """Return what a server must know to use the network."""
    config, (columns, n_known) = stored.config, _trial(scorer, stored, 2)
    inputs = {
        name: {
            "type": str(values.dtype).removeprefix("torch."),
            "shape": ["sessions", *values.shape[1:]],
        }
        for name, values in {**columns, "n_known": n_known}.items()
    }
    return {
        "format": format_,
        "dataset": config.dataset,
        "window": config.window,
        "architecture": config.model.architecture,
        "task": config.task.name,
        "inputs": inputs,
        "outputs": {"item": ["sessions", scorer.top_k], "score": ["sessions", scorer.top_k]},
        "vocabularies": {name: str(vocabulary_path(Path(), name)) for name in config.sizes},
        "torch": torch.__version__,
    }
