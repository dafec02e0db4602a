"""The golden table: sessions, ranks and AOD of some 23 settings on three generated logs.

    python tests/golden/table.py --tree . [--short] [--logs plain] [--record]

runs the stages of a tree on each log and compares what they write with table.json: sessions and the
ranks of counting models exactly, AOD of networks and memory as means over three seeds. It exits
with 1 and names each difference. It goes through files alone: a log, a data set file and
params.yaml in a scratch folder, stages/*.py, data/windows and results. Settings change the tree's
own params.yaml, and only keys that it has.
"""
# ruff: noqa: T201

import argparse
import contextlib
import io
import json
import os
import runpy
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import yaml  # noqa: TID251

TABLE = Path(__file__).with_name("table.json")
REMINDS = ("none", "score", "first", "boost")
COUNTING = ("popularity", "own", "transitions", "cooccurrence", "vsknn", "stan", "vstan", "slist")
HALF_LIVES = ["6h", "1d", "4d"]
SEEDS = (1, 2, 3)
METRICS = ("ndcg_at_20", "recall_at_20")
LEAST = 0.002
"""Difference of two means over seeds that is always allowed."""
BASE = {
    "window": {"min_sessions": 10},
    "model": {"architecture": "gpt2", "network": "none", "d_model": 16, "n_layer": 1, "n_head": 2},
    "training": {"epochs": 2, "batch_size": 32, "learning_rate": 0.01, "precision": "float32"},
    "loss": {"name": "softmax", "negatives": 32},
    "memory": {"first_epochs": 3, "epochs": 1},
    "evaluation": {"split": "all", "cutoffs": [10, 20]},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "machine": {"workers": 1},
    "tracking": {"sinks": [], "log_model": False},
}
FEATURES, CATEGORY = "the log's side features", "its categorical one"
"""Values of model.features to be replaced."""
NETWORKS = {
    "gpt2 clm softmax": {"model": {"architecture": "gpt2"}},
    "gru4rec clm bpr_max": {"model": {"architecture": "gru4rec"}, "loss": {"name": "bpr_max"}},
    "gpt2 clm gbce": {"model": {"architecture": "gpt2"}, "loss": {"name": "gbce"}},
    "gpt2 clm past": {"model": {"architecture": "gpt2", "past_length": 5}},
    "gpt2 clm features": {"model": {"architecture": "gpt2", "features": FEATURES}},
    "bert mlm": {"model": {"architecture": "bert"}, "task": {"name": "mlm"}},
    "xlnet plm": {"model": {"architecture": "xlnet"}, "task": {"name": "plm"}},
    "electra rtd": {"model": {"architecture": "electra"}, "task": {"name": "rtd"}},
    "memory": {"model": {"architecture": "memory"}},
    "memory features": {"model": {"architecture": "memory", "features": CATEGORY}},
    "memory past": {"model": {"architecture": "memory", "past_length": 5}},
    "memory tick": {"model": {"architecture": "memory"}, "live": {"tick": "30min"}},
    "memory gpt2": {"model": {"architecture": "memory", "network": "gpt2"}},
    "memory gpt2 tick": {
        "model": {"architecture": "memory", "network": "gpt2"}, "live": {"tick": "1h"},
    },
    "memory gpt2 features": {
        "model": {"architecture": "memory", "network": "gpt2", "features": FEATURES},
    },
}  # fmt: skip
SHORT = ("gpt2 clm softmax", "gru4rec clm bpr_max")


def log_of(name):
    """Rows of a log of five windows in order of time, of which the last is not complete."""
    rng = np.random.default_rng(sorted(LOGS).index(name))
    hours, sizes, n_items, step = LOGS[name]["hours"], LOGS[name]["sizes"], 150, LOGS[name]["step"]
    after = rng.integers(n_items, size=(n_items, 3))
    rows = []
    for window, size in enumerate(sizes):
        begin = 1_767_571_200 + window * hours * 3600
        for number in range(size):
            now = begin + int(rng.integers(hours * 3600)) // step * step
            item = int(n_items * rng.random() ** 3)
            for _ in range(1 + rng.geometric(0.28)):
                born = item + LOGS[name]["born"] * window
                rows.append((now, f"{window}s{number}", f"u{number % 40}", born))
                now += int(rng.integers(1200)) // step * step
                item = after[item, rng.integers(3)] if rng.random() < 0.6 else item
                item = int(rng.integers(n_items)) if rng.random() < 0.15 else int(item)
    rows.sort(key=lambda row: row[0])
    rows.append((begin + hours * 3600, "end", "u0", 0))
    return [dict(zip(("at", "session", "user", "item"), row, strict=True)) for row in rows]


LOGS = {
    "plain": {"hours": 24, "sizes": (75,) * 4, "step": 1, "born": 0,
              "window": {"unit": "day", "length": 1}, "features": ["category", "price", "hour"]},
    "shop": {"hours": 24, "sizes": (75,) * 4, "step": 1, "born": 3,
             "window": {"unit": "day", "length": 1}, "features": ["brand", "cost", "weekday"]},
    "awkward": {"hours": 6, "sizes": (110, 80, 6, 15, 90), "step": 600, "born": 6,
                "window": {"unit": "hour", "length": 6},
                "features": ["category", "size", "item_age"]},
}  # fmt: skip


def write_csv(path, rows):
    """Write rows, all with the same columns."""
    lines = [rows[0], *(row.values() for row in rows)]
    text = "".join(",".join(map(str, line)) + "\n" for line in lines)
    Path(path).write_text(text, encoding="utf-8")


def write_log(name):
    """Write a log and its data set file to the working folder."""
    rows = log_of(name)
    for number, row in enumerate(rows):
        at, item = datetime.fromtimestamp(row.pop("at"), UTC), row["item"]
        row["time"] = f"{at:%Y-%m-%dT%H:%M:%SZ}"
        row |= {"category": f"c{item % 7}", "price": 1 + item % 11}
        row["type"] = ("view", "view", "cart", "purchase")[(item + number // 5) % 4]
    columns = {"session_id": "session", "item_id": {"column": "item", "type": "int"}}
    sessions = {"repeats": {"rule": "keep", "scope": "session"}, "min_length": 2,
                "max_length": 12, "truncate": "first"}  # fmt: skip
    features = {"category": {"kind": "categorical", "column": "category", "of_item": True},
                "price": {"kind": "log_number", "column": "price"},
                "hour": {"kind": "hour"}}  # fmt: skip
    dataset = {"description": "d", "licence": "none", "source": {"urls": ["log.csv"]},
               "columns": columns, "time": {"column": "time"}, "sessions": sessions,
               "features": features, "split": {"seed": 1, "train": [0, 1], "valid": [0, 0.5],
                                               "test": [0.5, 1]}}  # fmt: skip
    if name == "awkward":
        columns["item_id"] = {"column": "item", "type": "string"}
        sessions |= {"repeats": {"rule": "drop_consecutive", "scope": "session"}, "max_length": 6,
                     "truncate": "last"}  # fmt: skip
        for row in rows:
            row["item"] = f"Ä {row['item']}"
            row["size"] = "" if row["price"] == 3 else row["price"]
        del features["price"], features["hour"]
        features |= {"size": {"kind": "number", "column": "size", "scale": "gauss_rank"},
                     "item_age": {"kind": "item_age"}}  # fmt: skip
    else:
        columns["user_id"], sessions["past_max_length"] = "user", 5
    if name == "shop":
        columns["event_type"] = "type"
        write_csv("items.csv", [
            {"sku": i, "brand": f"b{i % 9}", "cost": i % 13, "title": f"red {i % 5} coat {i % 8}"}
            for i in range(1 + max(row["item"] for row in rows))
        ])  # fmt: skip
        dataset["items"] = {
            "source": {"urls": ["items.csv"]}, "item_id": {"column": "sku", "type": "int"},
            "features": {"brand": {"kind": "categorical", "column": "brand"},
                         "cost": {"kind": "log_number", "column": "cost"}},
            "vectors": {"content": {"kind": "text", "columns": ["title"], "dimensions": 4}},
        }  # fmt: skip
        dataset["features"] = {"weekday": {"kind": "weekday"}}
    write_csv("log.csv", rows)
    Path("datasets").mkdir()
    Path(f"datasets/{name}.yaml").write_text(json.dumps(dataset), encoding="utf-8")


def write_params(tree, name, *changes):
    """Write the tree's params.yaml with the settings changed that it has."""
    params = yaml.safe_load((tree / "params.yaml").read_text(encoding="utf-8"))
    params["dataset"] = name
    for sections in (BASE, {"window": LOGS[name]["window"]}, *changes):
        for section, settings in sections.items():
            known = params.get(section, {})
            known |= {key: value for key, value in settings.items() if key in known}
    for key in params["memory"]:
        if key.endswith("half_lives"):
            params["memory"][key] = HALF_LIVES
    named = {FEATURES: LOGS[name]["features"], CATEGORY: LOGS[name]["features"][:1]}
    if params["model"]["features"]:
        params["model"]["features"] = named[params["model"]["features"]]
    Path("params.yaml").write_text(json.dumps(params), encoding="utf-8")


def run(tree, *stages):
    """Run stages of the tree in this process and in the working folder."""
    for stage in stages:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                runpy.run_path(str(tree / "stages" / f"{stage}.py"), run_name="__main__")
        except SystemExit as error:
            if error.code:
                raise RuntimeError(f"{stage}: {error.code} {said.getvalue()[-2000:]}") from None


def windows_of():
    """Sessions by window and id: roles (two letters each) and raw items."""
    table = pq.read_table("data/windows/vocabulary/item_id.parquet").to_pydict()
    items = dict(zip(table["index"], table["value"], strict=True))
    found = {}
    for path in sorted(Path("data/windows").glob("session_start_*.parquet")):
        window, _, role = path.stem.partition("=")[2].rpartition("-")
        columns = pq.ParquetFile(path).read(["session_id", "item_id"]).to_pydict()
        for session, indices in zip(columns["session_id"], columns["item_id"], strict=True):
            of = found.setdefault(window, {}).setdefault(session, ["", [items[i] for i in indices]])
            of[0] += role[:2]
    return found


def ranks_of():
    """Ranks by window, min(rank, 101) in order of session ids."""
    found = {}
    for path in sorted(Path("results/ranks").glob("*.parquet")):
        columns = pq.ParquetFile(path).read(["session_id", "rank"]).to_pydict()
        pairs = sorted(zip(columns["session_id"], columns["rank"], strict=True))
        found[path.stem] = [min(rank, 101) if rank else 0 for _, rank in pairs]
    return found


def aod():
    """Means over the windows of results/windows.csv."""
    head, *rows = (line.split(",") for line in Path("results/windows.csv").read_text().split())
    return [statistics.mean(float(row[head.index(name)]) for row in rows) for name in METRICS]


def measured(tree, logs, short):
    """Everything that a tree gives: {"plain/sessions": ..., "plain/stan none": ...}."""
    found = {}
    for name in logs:
        n_log = list(LOGS).index(name)
        with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            write_log(name)
            write_params(tree, name)
            run(tree, "download", "preprocess")
            found[f"{name}/sessions"] = windows_of()
            for n_model, model in enumerate(COUNTING):
                remind = REMINDS[(n_model + n_log) % 4]
                began = time.monotonic()
                write_params(tree, name, {"model": {"architecture": model, "remind": remind}})
                run(tree, "train")
                print(f"{name}/{model}: {time.monotonic() - began:.1f} s", flush=True)
                found[f"{name}/{model} {remind}"] = ranks_of()
            for network in SHORT if short else NETWORKS:
                if "past" in network and name == "awkward":
                    continue
                began, by_seed = time.monotonic(), []
                for seed in SEEDS:
                    write_params(tree, name, NETWORKS[network], {"training": {"seed": seed}})
                    run(tree, "train")
                    by_seed.append(aod())
                found[f"{name}/{network}"] = {
                    metric: [statistics.mean(values), statistics.stdev(values)]
                    for metric, values in zip(METRICS, zip(*by_seed, strict=True), strict=True)
                }
                print(f"{name}/{network}: {time.monotonic() - began:.1f} s", flush=True)
    return found


def differences(expected, found):
    """Yield a line for each difference of what was found."""
    for name, value in found.items():
        if name not in expected:
            yield f"{name}: not recorded"
        elif name.endswith("/sessions"):
            yield from sessions_differ(name, expected[name], value)
        elif name.partition("/")[2] in NETWORKS:
            yield from means_differ(name, expected[name], value)
        else:
            yield from ranks_differ(name, expected[name], value)


def means_differ(name, known, value):
    """Yield a line for each metric whose mean over the seeds differs."""
    for metric, (mean, spread) in value.items():
        recorded, spread_recorded = known[metric]
        allowed = max(3 * max(spread, spread_recorded) / len(SEEDS) ** 0.5, LEAST)
        if abs(mean - recorded) > allowed:
            yield f"{name}: {metric} {mean:.4f}, recorded {recorded:.4f} +- {allowed:.4f}"


def ranks_differ(name, known, value):
    """Yield a line for each window whose ranks differ."""
    for window in sorted({*known, *value}):
        old, new = known.get(window, []), value.get(window, [])
        if old != new:
            n_other = sum(a != b for a, b in zip(old, new, strict=False))
            yield f"{name}: {window}: {n_other} of {len(old)} ranks differ, now {len(new)}"


def sessions_differ(name, known, value):
    """Yield a line for each window whose sessions differ."""
    for window in sorted({*known, *value}):
        old, new = known.get(window, {}), value.get(window, {})
        other = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        if other:
            one = other[0]
            yield f"{name}: {window}: {len(other)} differ: {one} {old.get(one)} {new.get(one)}"


def main():
    """Measure a tree and compare it with the table, or record it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tree", type=Path, default=Path())
    parser.add_argument("--short", action="store_true", help="counting models and two networks")
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument("--record", action="store_true", help="write table.json")
    options = parser.parse_args()
    tree = options.tree.resolve()
    sys.path.insert(0, str(tree / "src"))
    os.environ["PYTHONPATH"] = str(tree / "src")
    began = time.monotonic()
    found = measured(tree, options.logs, options.short)
    print(f"{len(found)} entries in {time.monotonic() - began:.0f} s")
    expected = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    if options.record:
        lines = (f"{json.dumps(name)}: {json.dumps(value)}"
                 for name, value in (expected | found).items())  # fmt: skip
        TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return 0
    lines = list(differences(expected, found))
    print("\n".join(lines or ["no difference"]))
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
