"""Architectures to test, and the tasks that each one supports or rejects."""

import pytest

NAMED = (
    *("gpt2", "xlnet", "bert", "albert", "electra", "longformer", "reformer"),
    *("gru", "gru4rec", "lstm", "rnn", "avg", "ligr"),
)
OTHER_TRANSFORMERS = (
    *("llama", "qwen3", "modernbert", "mamba", "distilbert", "roberta", "opt", "gpt_neox"),
    *("t5", "bart"),
)
FAST = ("gpt2", "xlnet", "bert", "electra", "gru", "gru4rec", "ligr", "qwen3")
"""In the fast suite; tests of the other architectures are marked slow."""
BIDIRECTIONAL = (
    *("xlnet", "bert", "albert", "electra", "longformer", "reformer"),
    *("modernbert", "distilbert", "roberta", "t5", "bart"),
)
NEVER_CAUSAL = ("longformer",)
WITHOUT_WEIGHTS = ("longformer", "gru", "gru4rec", "lstm", "rnn", "avg", "ligr", "mamba")
"""Without attention weights between events."""

PAIRS = [
    *((name, "clm") for name in (*NAMED, *OTHER_TRANSFORMERS) if name not in NEVER_CAUSAL),
    *((name, "mlm") for name in BIDIRECTIONAL),
]
TRAINED = [*PAIRS, *((name, "rtd") for name in BIDIRECTIONAL), ("xlnet", "plm")]
"""Pairs of every task: `rtd` needs the attention that `mlm` does, `plm` a query stream."""
REJECTED = [
    *((name, "clm", "it lets an event see a later one") for name in NEVER_CAUSAL),
    *(
        (name, "mlm", "it sees the past only")
        for name in (*NAMED, *OTHER_TRANSFORMERS)
        if name not in BIDIRECTIONAL
    ),
]


def mark_slow(cases):
    """Parametrize over architectures, or tuples that begin with one; mark all but FAST as slow."""
    rows = [(case,) if isinstance(case, str) else case for case in cases]
    return [pytest.param(*row, marks=() if row[0] in FAST else pytest.mark.slow) for row in rows]
