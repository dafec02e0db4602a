"""Any body through the protocol: named ones train, and a wrong one ends it before a step."""

import numpy as np
import pytest

from dayahead.core.errors import ConfigError
from support.backbones import mark_slow
from support.tiny_settings import evaluated_windows, ranks_of, train_study
from support.window_folders import markov_days, write_window_folder

DAYS = markov_days(n_days=3, sessions_per_day=30, n_items=25)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS)


@pytest.mark.parametrize(
    ("architecture", "task"),
    mark_slow(
        [
            *((n, "clm") for n in ("albert", "electra", "gru", "lstm", "rnn", "avg", "qwen3")),
            *((n, "mlm") for n in ("albert", "electra", "longformer", "reformer", "modernbert")),
        ]
    ),
)
def test_a_body_is_trained_and_measured_on_each_window(tmp_path, windows, architecture, task):
    sections = {"model": {"architecture": architecture}, "task": {"name": task}}
    out = train_study(windows, tmp_path, sections)
    assert len(evaluated_windows(out)) == 2
    ranks = np.concatenate([ranks_of(out, window) for window in evaluated_windows(out)])
    assert len(ranks) == 60
    assert ranks.max() > ranks[ranks > 0].min()


@pytest.mark.parametrize(
    ("model", "task", "told"),
    [
        ({"architecture": "gtp2"}, "clm", "gtp2 is unknown"),
        ({"architecture": "transfoxl"}, "clm", "left transformers in version 5"),
        ({"architecture": "gpt2"}, "mlm", "it sees the past only"),
        ({"architecture": "gru"}, "rtd", "it sees the past only"),
        ({"architecture": "longformer"}, "clm", "it lets an event see a later one"),
        ({"architecture": "bert"}, "plm", "has no query stream"),
        ({"architecture": "bert", "config": {"hiden_act": "relu"}}, "clm", "no such field"),
        ({"architecture": "bert", "d_model": 18, "n_head": 4}, "clm", "multiple of model.n_head"),
    ],
)
def test_a_wrong_architecture_ends_the_run_before_a_step(tmp_path, windows, model, task, told):
    with pytest.raises(ConfigError) as refusal:
        train_study(windows, tmp_path, {"model": model, "task": {"name": task}})
    assert told in str(refusal.value)
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("*.safetensors"))
