"""Exported networks: their scores equal ours; what cannot be exported is refused."""

import json
from importlib.util import find_spec

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.columns import N_RESERVED
from dayahead.core.errors import ConfigError, DataError
from dayahead.serve import export as exports
from dayahead.serve.export import export_model
from support.window_folders import raw_events

FEATURES = ("category", "price")
NETWORKS = [
    ("gpt2", "clm", ()),
    pytest.param("gpt2", "clm", FEATURES, marks=pytest.mark.slow),
    pytest.param("gru", "clm", (), marks=pytest.mark.slow),
    pytest.param("bert", "mlm", (), marks=pytest.mark.slow),
    pytest.param("xlnet", "clm", (), marks=pytest.mark.slow),
    pytest.param("xlnet", "mlm", (), marks=pytest.mark.slow),
    pytest.param("xlnet", "plm", (), marks=pytest.mark.slow),
    pytest.param("electra", "rtd", (), marks=pytest.mark.slow),
]
SESSIONS = [[1, 2, 3], [4], [99, 5, 6, 7, 8], [3, 99]]
WIDTH = 5
needs_onnx = pytest.mark.skipif(
    not all(find_spec(name) for name in exports.ONNX_PACKAGES),
    reason="onnx, onnxscript and onnxruntime are not installed",
)
pytestmark = pytest.mark.filterwarnings("ignore")
"""The exporters warn of what they trace."""


def encoded(model, names):
    """The sessions as the exported network reads them."""
    arrays = [model.encoder.encode_session(raw_events(items)) for items in SESSIONS]
    columns = {
        name: torch.stack(
            [
                torch.nn.functional.pad(torch.from_numpy(each[name]), (0, WIDTH - len(items)))
                for each, items in zip(arrays, SESSIONS, strict=True)
            ]
        )
        for name in names
    }
    columns["item_id"] = columns["item_id"].long()
    if "category" in columns:
        columns["category"] = columns["category"].long()
    return columns, torch.tensor([len(items) for items in SESSIONS])


def check(model, folder, items, scores):
    """Compare with `recommend`, through the vocabulary beside the network."""
    values = pq.read_table(folder / "vocabulary" / "item_id.parquet")["value"].to_numpy()
    for row, session in enumerate(SESSIONS):
        wanted = dict(model.recommend_after(raw_events(session), 1000))
        found = dict(zip(values[items[row] - N_RESERVED].tolist(), scores[row], strict=True))
        assert found.keys() == wanted.keys()
        largest = max(abs(score) for score in wanted.values())
        for item, score in wanted.items():
            assert found[item] == pytest.approx(score, abs=1e-5 * largest)
        assert (np.diff(scores[row]) <= 0).all()


@pytest.mark.long
@pytest.mark.parametrize(("architecture", "task", "features"), NETWORKS)
def test_the_scores_of_a_pt2_equal_ours(saved_model, load, tmp_path, architecture, task, features):
    models, model = saved_model(architecture, task, features), load(architecture, task, features)
    path = export_model(models, tmp_path / "out", "pt2", 1000)
    described = json.loads((tmp_path / "out" / "export.json").read_text())
    assert described["inputs"]["item_id"] == {"type": "int64", "shape": ["sessions", WIDTH]}
    names = [name for name in described["inputs"] if name != "n_known"]
    assert set(names) == {"item_id", *features}
    program = torch.export.load(path).module()
    columns, n_known = encoded(model, names)
    items, scores = program(columns, n_known)
    assert list(scores.shape) == [len(SESSIONS), described["outputs"]["score"][1]]
    check(model, tmp_path / "out", items.numpy(), scores.detach().numpy())
    one = program({name: values[:1] for name, values in columns.items()}, n_known[:1])
    assert torch.equal(one[0], items[:1])


@needs_onnx
@pytest.mark.parametrize(("architecture", "task", "features"), NETWORKS[:2])
def test_the_scores_of_onnx_equal_ours(saved_model, load, tmp_path, architecture, task, features):
    import onnxruntime

    models, model = saved_model(architecture, task, features), load(architecture, task, features)
    path = export_model(models, tmp_path / "out", "onnx", 1000)
    session = onnxruntime.InferenceSession(path)
    columns, n_known = encoded(model, ["item_id", *features])
    given = {name: values.numpy() for name, values in columns.items()}
    items, scores = session.run(None, {**given, "n_known": n_known.numpy()})
    check(model, tmp_path / "out", items, scores)


@pytest.mark.parametrize("architecture", ["memory", "transitions"])
def test_what_is_no_network_is_refused(saved_model, tmp_path, architecture):
    with pytest.raises(
        ConfigError, match=rf"export: {architecture} looks its counts up with numpy"
    ):
        export_model(saved_model(architecture), tmp_path / "out", "pt2", 10)
    assert not list(tmp_path.iterdir())


def test_the_reason_of_a_failed_trace_is_named(saved_model, tmp_path, monkeypatch):
    def fail(*_args, **_options):
        raise RuntimeError("data-dependent branch\n\n - at line 3\nadvice")

    monkeypatch.setattr(torch.export, "export", fail)
    with pytest.raises(
        ConfigError, match=r"gpt2 with task clm .* as pt2: data-dependent branch at line 3;"
    ):
        export_model(saved_model(), tmp_path / "out", "pt2", 10)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_other_scores_are_refused(saved_model, tmp_path, monkeypatch):
    class Other(exports.ExportedScorer):
        def forward(self, columns, n_known):
            items, scores = super().forward(columns, n_known)
            return items, scores * 1.001

    monkeypatch.setattr(exports, "ExportedScorer", Other)
    with pytest.raises(DataError, match="differ from those of the saved model"):
        export_model(saved_model(), tmp_path / "out", "pt2", 10)
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_named(saved_model, tmp_path, monkeypatch):
    monkeypatch.setattr(exports, "find_spec", lambda name: None if name == "onnxscript" else name)
    monkeypatch.setattr(exports, "ONNX_PACKAGES", ("torch", "onnxscript"))
    with pytest.raises(ConfigError, match=r"requires onnxscript; install .*--group onnx"):
        export_model(saved_model(), tmp_path / "out", "onnx", 10)


def test_a_folder_with_other_files_is_left_alone(saved_model, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="no earlier export"):
        export_model(saved_model(), tmp_path, "pt2", 10)
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.slow
def test_the_command_replaces_an_earlier_export(saved_model, tmp_path):
    options = ["export", str(tmp_path / "out"), "--models", str(saved_model()), "--top-k", "3"]
    for _ in range(2):
        result = CliRunner().invoke(app, options)
        assert result.exit_code == 0
        assert result.stdout.splitlines()[-1] == str(tmp_path / "out" / "model.pt2")
    assert not [path for path in tmp_path.iterdir() if path.name != "out"]
