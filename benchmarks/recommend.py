"""CPU time of `recommend` for a session of two events, and of its parts.

The encoding is compared with that of a window's events, by an NVTabular workflow.

GPT-2/clm at d 64, 1 layer, over 20,000 items, with item ids alone and with six side features.
Figures are medians of process time in rounds in which the works take turns.

Command: python -W ignore benchmarks/recommend.py
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from dayahead.core.columns import (
    EVENT_TIME,
    FIRST_TIME,
    INDEX,
    ITEM_ID,
    N_RESERVED,
    TIMESTAMP,
    VALUE,
)
from dayahead.features.session_encoder import SessionEncoder
from dayahead.features.workflow import encode
from dayahead.model.building import build_model
from dayahead.model.checkpoint import ModelConfigFile, StoredModel
from dayahead.serve.recommender import Recommender
from dayahead.windows.metadata import FeatureStatistics, SessionRules, Statistics
from history import Figure, record
from measurement import print_header, time_in_turns
from workload import default_params, gpt2_params

N_ITEMS = 20_000
N_BRANDS = 500
ROUNDS = 100
START = datetime(2026, 1, 1, tzinfo=UTC)
BRANDS = [f"brand {n}" for n in range(N_BRANDS)]
MEANS = {"relative_to": "brand", "values": BRANDS, "means": [9.0] * N_BRANDS, "overall_mean": 9.0}
RANKS = {"knots": [float(n) for n in range(1001)], "n": 50_000}
FEATURES = {
    "brand": FeatureStatistics(kind="categorical", columns=["brand"], type="string"),
    "price": FeatureStatistics(kind="log_number", columns=["price"], mean=2.0, std=1.5),
    "rank": FeatureStatistics(kind="number", columns=["rank"], **RANKS),
    "relative": FeatureStatistics(kind="relative_number", columns=["relative"], **MEANS),
    "hour": FeatureStatistics(kind="hour", columns=["hour_sin", "hour_cos"]),
    "age": FeatureStatistics(kind="item_age", columns=["age"]),
}
EVENTS = pa.table(
    {
        ITEM_ID: [5, 7],
        EVENT_TIME: pa.array([START + timedelta(hours=n) for n in (100, 101)], TIMESTAMP),
        "brand": ["brand 1", "unknown"],
        **{name: [3.0, None] for name in ("price", "rank", "relative")},
    }
)


def vocabulary(values: list[Any]) -> pa.Table:
    """Return a vocabulary whose values are all of the first day."""
    index = pa.array(range(N_RESERVED, N_RESERVED + len(values)), pa.int32())
    times = pa.array([START] * len(values), TIMESTAMP)
    return pa.table({INDEX: index, VALUE: values, FIRST_TIME: times})


def recommender(
    features: Mapping[str, FeatureStatistics], d_model: int = 64, n_layer: int = 1, n_head: int = 4
) -> Recommender:
    """Return one of a model that was not trained."""
    params = gpt2_params(default_params())
    model = replace(
        params.model,
        features=tuple(features),
        d_model=d_model,
        n_layer=n_layer,
        n_head=n_head,
        past_length=0,
    )
    rules = SessionRules(
        repeats="keep", min_length=2, max_length=20, truncate="first", past_max_length=0
    )
    fitted = Statistics(unit="day", timezone="Europe/Oslo", item_type="int", sessions=rules,
                        fitted_on=[], features=dict(features))  # fmt: skip
    vocabularies = {ITEM_ID: vocabulary(list(range(N_ITEMS)))}
    vocabularies |= {"brand": vocabulary(BRANDS)} if features else {}
    sizes = {name: len(table) for name, table in vocabularies.items()}
    network = build_model(replace(params, model=model), fitted, sizes, seed=1)
    network.grow(sizes)
    config = ModelConfigFile(dataset="", window="", end=0, seed=1, sizes=sizes, first_sizes=sizes,
                             known=sizes, statistics=fitted,
                             **params.sections() | {"model": model})  # fmt: skip
    candidates = np.arange(N_RESERVED, N_RESERVED + N_ITEMS, dtype=np.int32)
    return Recommender(StoredModel(config, network, candidates, candidates.astype(np.int64),
                                   vocabularies))  # fmt: skip


def cpu_ms(work: Callable[[], object]) -> float:
    """Return the milliseconds of process time of one call."""
    start = time.process_time()
    work()
    return 1_000 * (time.process_time() - start)


def measure(label: str, features: Mapping[str, FeatureStatistics]) -> dict[str, Figure]:
    """Time a model's parts in turns; print the medians and return that of `recommend`."""
    model = recommender(features)
    stored = model.stored
    encoder = SessionEncoder(stored.config.statistics, stored.vocabularies)
    arrays = encoder.encode_session(EVENTS)
    columns = {name: torch.from_numpy(values)[None] for name, values in arrays.items()}
    scorer = stored.model.scorer(torch.from_numpy(stored.candidates).long())
    works = {
        "recommend": lambda: model.recommend_after(EVENTS, 10),
        "encoding": lambda: encoder.encode_session(EVENTS),
        "forward": lambda: scorer(columns, torch.tensor([2])),
        "workflow": lambda: encode(EVENTS, stored.config.statistics, stored.vocabularies),
    }
    rounds = time_in_turns(works, ROUNDS, cpu_ms)
    medians = {name: statistics.median(each[name] for each in rounds) for name in works}
    times = ", ".join(f"{name} {median:.2f} ms" for name, median in medians.items())
    ratio = medians["workflow"] / medians["encoding"]
    print(f"{label}: {times}; workflow / encoding {ratio:.1f} (medians of {ROUNDS} rounds)")
    return {f"recommend, {label}": Figure(medians["recommend"], "ms")}


def main() -> None:
    """Measure and print."""
    print_header()
    torch.set_num_threads(1)
    figures = measure("ids alone", {}) | measure("six side features", FEATURES)
    record("recommend", {"threads": 1}, figures)


if __name__ == "__main__":
    main()
