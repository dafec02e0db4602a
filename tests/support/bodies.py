"""Every body by name and some of the zoo's, with the tasks that each can and cannot be asked."""

import pytest

NAMED = (
    *("gpt2", "xlnet", "bert", "albert", "electra", "longformer", "reformer"),
    *("gru", "lstm", "rnn", "avg"),
)
OF_THE_ZOO = (
    *("llama", "qwen3", "modernbert", "mamba", "distilbert", "roberta", "opt", "gpt_neox"),
    *("t5", "bart"),
)
AT_ONCE = ("gpt2", "xlnet", "bert", "electra", "gru", "qwen3")
"""Tested among the fast tests; what else a test takes through every body is slow."""
LOOK_BOTH_WAYS = (
    *("xlnet", "bert", "albert", "electra", "longformer", "reformer"),
    *("modernbert", "distilbert", "roberta", "t5", "bart"),
)
NEVER_CAUSAL = ("longformer",)
WITHOUT_WEIGHTS = ("longformer", "gru", "lstm", "rnn", "avg", "mamba")
"""Of events to events."""

PAIRS = [
    *((name, "clm") for name in (*NAMED, *OF_THE_ZOO) if name not in NEVER_CAUSAL),
    *((name, "mlm") for name in LOOK_BOTH_WAYS),
]
TRAINED = [*PAIRS, *((name, "rtd") for name in LOOK_BOTH_WAYS), ("xlnet", "plm")]
"""By every task: `rtd` asks of a body what `mlm` does, `plm` a second stream besides."""
REFUSED = [
    *((name, "clm", "it lets an event see a later one") for name in NEVER_CAUSAL),
    *(
        (name, "mlm", "it sees the past only")
        for name in (*NAMED, *OF_THE_ZOO)
        if name not in LOOK_BOTH_WAYS
    ),
]


def the_rest_slow(cases):
    """Names of bodies, or tuples that begin with one, as parametrize takes them."""
    rows = [(case,) if isinstance(case, str) else case for case in cases]
    return [pytest.param(*row, marks=() if row[0] in AT_ONCE else pytest.mark.slow) for row in rows]
