"""Two trees on random logs with random settings: what one writes, the other must write too.

    python tests/golden/differential.py --old ../before --new . --seed 0 --rounds 20

Each round draws a log and settings in neutral words (`drawn`), writes them as each tree reads them
(`WRITERS`), runs download, preprocess and train of both, and compares sessions, vocabularies and
ranks; where one refuses, the other must too. A difference is printed with the command that makes it
again. One process for each tree runs all rounds. It is no test, and leaves with the rebuild.
"""
# ruff: noqa: T201

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import yaml  # noqa: TID251
from table import run

DAY = 86_400_000_000
MODELS = ("popularity", "own", "transitions", "cooccurrence", "sknn", "vsknn", "stan", "vstan",
          "slist")  # fmt: skip
REMINDS = ("none", "score", "first", "boost")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu")
WINDOWS = {"day": (1,), "hour": (6, 12, 4), "minute": (60, 30)}
MICROSECONDS = {"day": DAY, "hour": DAY // 24, "minute": DAY // 1440}
ODD_IDS = ("17", "017", "17.0", "1e3", "s,1", 'a "b"', "Ü ñ", "0", "null", "x" * 70)
FEATURES = {
    "category": {"kind": "categorical", "column": "category"},
    "rare": {"kind": "categorical", "column": "category", "min_count": 3},
    "price": {"kind": "log_number", "column": "price"},
    "price_rank": {"kind": "number", "column": "price", "scale": "gauss_rank"},
    "raw_price": {"kind": "number", "column": "price", "scale": "fixed"},
    "relative": {"kind": "relative_number", "column": "price", "relative_to": "category"},
    "hour": {"kind": "hour"},
    "weekday": {"kind": "weekday"},
    "item_age": {"kind": "item_age"},
}
"""In the tag's words; `relative` needs `category`."""
WRONG = (
    {"sessions": {"min_length": 0}}, {"sessions": {"max_length": 1}},
    {"sessions": {"truncate": "middle"}}, {"split": {"train": [0, 2]}},
    {"columns": {"item_id": {"column": "nowhere", "type": "int"}}},
    {"columns": {"session_id": "nowhere"}}, {"features": {"bad": {"kind": "colour"}}},
    {"features": {"bad": {"kind": "number", "column": "nowhere"}}},
    {"window": {"timezone": "Mars/Base"}}, {"window": {"length": 0}}, {"window": {"unit": "year"}},
    {"window": {"first": "2031-01-01"}}, {"window": {"min_sessions": 100_000}},
    {"model": {"architecture": "vstam"}}, {"events": {"targets": ["nothing"]}},
)  # fmt: skip
"""Changes of the file of the data set (first five sections) or of params.yaml that are refused."""


def choice(rng, values):
    """Return one of the values."""
    return values[int(rng.integers(len(values)))]


def drawn(seed):
    """Return the description of a log and of settings."""
    rng = np.random.default_rng(seed)
    unit = choice(rng, list(WINDOWS))
    of = {
        "unit": unit,
        "length": choice(rng, WINDOWS[unit]),
        "zone": choice(rng, ZONES) if unit == "day" else "UTC",
        "overrun": choice(rng, ["cut", "keep"]),
        "min_sessions": int(rng.integers(1, 5)),
        "fit_windows": int(rng.integers(1, 3)),
        "repeats": [choice(rng, ["keep", "drop_consecutive", "drop_all"]), "session"],
        "min_length": int(rng.integers(2, 4)),
        "max_length": int(rng.integers(4, 12)),
        "truncate": choice(rng, ["first", "last"]),
        "split": choice(rng, [[[0, 1], [0, 0.5], [0.5, 1]], [[0, 0.8], [0.7, 0.9], [0.8, 1]]]),
        "split_seed": int(rng.integers(5)),
        "by_gap": bool(rng.random() < 0.25),
        "gap": int(rng.integers(10, 60)),
        "past": int(rng.integers(4)),
        "types": bool(rng.random() < 0.4),
        "string_items": bool(rng.random() < 0.4),
        "time": choice(rng, ["text", "s", "ms", "us"]),
        "format": choice(rng, ["csv", "csv", "jsonl"]),
        "n_files": int(rng.integers(1, 3)),
        "evaluated": choice(rng, ["valid", "test", "all"]),
        "positions": choice(rng, ["last", "all"]),
        "catalogue": choice(rng, ["grow", "full"]),
        "models": [
            (str(name), choice(rng, REMINDS)) for name in rng.choice(MODELS, 3, replace=False)
        ],
        "wrong": choice(rng, WRONG) if rng.random() < 0.2 else {},
    }
    of["users"] = of["by_gap"] or bool(rng.random() < 0.5)
    if of["users"] and rng.random() < 0.3:
        of["repeats"][1] = "user"
    names = list(rng.permutation(list(FEATURES))[: int(rng.integers(5))])
    names += ["category"] if "relative" in names and "category" not in names else []
    of["features"] = [str(name) for name in names]
    of["targets"] = ["cart", "purchase"] if of["types"] and rng.random() < 0.3 else None
    of["items"] = choice(rng, [None, None, "plain", "dated", "available"])
    of["rows"] = drawn_rows(rng, of)
    of["item_rows"] = drawn_items(rng, of)
    return of


def drawn_rows(rng, of):
    """Return the rows of a log in the order of its files."""
    width = MICROSECONDS[of["unit"]] * of["length"]
    days = choice(rng, ["2026-01-05", "2026-03-06", "2026-03-27"])
    begin = int(datetime.fromisoformat(f"{days}T00:00:00+00:00").timestamp()) * 1_000_000
    step = choice(rng, [1_000_000, 60_000_000, 1_000] if of["time"] != "s" else [1_000_000])
    step = max(step, 1_000_000) if of["time"] == "text" else step
    gaps = width // 1_000_000 // choice(rng, [400, 60, 20])
    n_items = int(rng.integers(20, 90))
    missing = choice(rng, [0, 0, 0.05])
    rows = []
    for number in range(int(rng.integers(150, 300))):
        at = begin + int(rng.integers(4 * width))
        odd = number < len(ODD_IDS) and rng.random() < 0.5
        session = ODD_IDS[number] if odd else f"s{int(rng.integers(400)) if number % 9 else number}"
        user, item = f"u{int(rng.integers(12))}", int(n_items * rng.random() ** 2)
        for _ in range(int(rng.geometric(0.25))):
            row = {"session": session, "user": user, "at": at // step * step, "item": item}
            row["category"] = None if rng.random() < missing else f"c{item % 6}"
            row["price"] = None if rng.random() < missing else round(item % 11 + 0.25, 2)
            row["type"] = choice(rng, ["view", "view", "view", "cart", "purchase"])
            rows.append(row)
            at += int(rng.integers(gaps)) * 1_000_000 + int(rng.integers(1000)) * 1000
            item = (item * 7 + int(rng.integers(3))) % n_items if rng.random() < 0.8 else item
    if rng.random() < 0.7:  # else the last window ends with the log
        rows.append(rows[0] | {"session": "end", "at": begin + 4 * width + DAY // 24})
    silent(rows, "session")
    silent(rows, "user")
    if rng.random() < 0.7:
        rows.sort(key=lambda row: row["at"])
    return rows


def silent(rows, column):
    """Give an id that has been silent for almost three days another name from there on."""
    last, names = {}, {}
    for row in sorted(rows, key=lambda row: row["at"]):
        name = row[column]
        if row["at"] - last.get(name, row["at"]) > 2.9 * DAY:
            names[name] = f"{names.get(name, name)}+"
        last[name] = row["at"]
        row[column] = names.get(name, name)


def drawn_items(rng, of):
    """Return the rows of the table of items."""
    times, rows = [row["at"] for row in of["rows"]], []
    for item in range(100 if of["items"] else 0):
        row = {"sku": item, "brand": f"b{item % 5}", "cost": item % 13}
        if of["items"] == "available":
            span = min(times) - DAY, max(times)
            row["from"] = None if rng.random() < 0.7 else int(rng.integers(*span))
            row["until"] = None if rng.random() < 0.8 else max(times) + DAY
        rows.append(row)
        if of["items"] == "dated":
            row["changed"] = min(times) - DAY * int(rng.integers(3))
            if rng.random() < 0.3:
                later = int(rng.integers(min(times), max(times)))
                rows.append(row | {"brand": "b9", "changed": later})
    return rows


def time_as(of, at):
    """Return a time in microseconds as the log writes it."""
    if at is None:
        return None
    if of["time"] == "text":
        return f"{datetime.fromtimestamp(at // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"
    return at // {"s": 1_000_000, "ms": 1_000, "us": 1}[of["time"]]


def write_rows(folder, of):
    """Write the files of the log and of the items; return their names."""
    prefix = "p" if of["string_items"] else ""
    log = [row | {"at": time_as(of, row["at"])} for row in of["rows"]]
    times = {"changed", "from", "until"}
    items = [
        {key: time_as(of, value) if key in times else value for key, value in row.items()}
        for row in of["item_rows"]
    ]
    for rows, key in ((log, "item"), (items, "sku")):
        for row in rows:
            row[key] = f"{prefix}{row[key]}" if prefix else row[key]
    middle = len(log) // of["n_files"] + 1
    parts = [log[n : n + middle] for n in range(0, len(log), middle)]
    files = {f"log-{n}.{of['format']}": part for n, part in enumerate(parts)}
    for name, rows in (files | ({"items.csv": items} if items else {})).items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            if name.endswith("csv"):
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            else:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    return list(files)


def dataset_of(of, files):
    """Return the data set file in the tag's form."""
    kind = "string" if of["string_items"] else "int"
    time = {"unit": of["time"]}
    dataset = {
        "description": "a random log",
        "licence": "none",
        "source": {"urls": files, "format": of["format"]},
        "columns": {"item_id": {"column": "item", "type": kind}},
        "time": {"column": "at", **time},
        "sessions": {
            "repeats": {"rule": of["repeats"][0], "scope": of["repeats"][1]},
            "min_length": of["min_length"],
            "max_length": of["max_length"],
            "truncate": of["truncate"],
        },
        "features": {name: FEATURES[name] for name in of["features"]},
        "split": dict(zip(("train", "valid", "test"), of["split"], strict=True))
        | {"seed": of["split_seed"]},
    }
    columns, sessions = dataset["columns"], dataset["sessions"]
    if of["by_gap"]:
        sessions["gap_minutes"] = of["gap"]
    else:
        columns["session_id"] = "session"
    if of["users"]:
        columns["user_id"], sessions["past_max_length"] = "user", of["past"]
    if of["types"]:
        columns["event_type"] = "type"
    if of["items"]:
        dataset["items"] = {
            "source": {"urls": ["items.csv"]},
            "item_id": {"column": "sku", "type": kind},
            "features": {
                "brand": {"kind": "categorical", "column": "brand"},
                "cost": {"kind": "log_number", "column": "cost"},
            },
        }
    if of["items"] == "dated":
        dataset["items"]["time"] = {"column": "changed", **time}
    if of["items"] == "available":
        dataset["items"] |= {"available_from": "from", "available_until": "until"}
    for section in dataset.keys() & of["wrong"].keys():
        dataset[section] |= of["wrong"][section]
    return dataset


def settings_of(of):
    """Return the settings that are not those of params.yaml, in the tag's words."""
    names = ("unit", "length", "overrun", "min_sessions")
    sections = {
        "window": {name: of[name] for name in names} | {"timezone": of["zone"]},
        "preprocess": {"fit_windows": of["fit_windows"]},
        "model": {"catalogue": of["catalogue"]},
        "events": {"targets": of["targets"]},
        "evaluation": {"split": of["evaluated"], "positions": of["positions"], "cutoffs": [10, 20]},
        "compute": {"processes": 1, "threads": 1, "device": "cpu"},
        "machine": {"workers": 1},
        "tracking": {"sinks": [], "log_model": False},
    }
    for section in sections.keys() & of["wrong"].keys():
        sections[section] |= of["wrong"][section]
    return sections


def write_params(tree, folder, of, sections):
    """Write params.yaml, and one for each model: the tree's own with the settings that it has."""
    params = yaml.safe_load((tree / "params.yaml").read_text(encoding="utf-8"))
    params["dataset"] = "random"
    for section, settings in sections.items():
        known = params.get(section, {})
        known |= {key: value for key, value in settings.items() if key in known}
    wrong = of["wrong"].get("model", {})
    for number, (name, remind) in enumerate(of["models"]):
        params["model"] |= {"architecture": name, "remind": remind, **wrong}
        for path in (folder / f"params-{number}.yaml", folder / "params.yaml"):
            path.write_text(json.dumps(params), encoding="utf-8")


def write_tag(tree, folder, of):
    """Write a round's files as the tag reads them."""
    dataset = dataset_of(of, write_rows(folder, of))
    (folder / "datasets").mkdir()
    (folder / "datasets/random.yaml").write_text(json.dumps(dataset), encoding="utf-8")
    write_params(tree, folder, of, settings_of(of))


def write_today(tree, folder, of):
    """Write a round's files as today's tree reads them."""
    write_tag(tree, folder, of)


WRITERS = {"old": write_tag, "new": write_today}


def windows_written():
    """Return sessions by window and id: roles, and the values of each column; vocabularies."""
    values, vocabularies, windows = {}, {}, {}
    for path in sorted(Path("data/windows/vocabulary").glob("*.parquet")):
        table = pq.read_table(path).to_pydict()
        values[path.stem] = dict(zip(table["index"], table["value"], strict=True))
        pairs = sorted(zip(table["index"], table["value"], table["first_window"], strict=True))
        vocabularies[path.stem] = [list(pair) for pair in pairs]
    for path in sorted(Path("data/windows").glob("session_start_*.parquet")):
        window, _, role = path.stem.partition("=")[2].rpartition("-")
        for row in pq.ParquetFile(path).read().to_pylist():
            session = {}
            for name, value in row.items():
                known = values.get(name.removeprefix("bef_"), {})
                many = value if isinstance(value, list) else [value]
                session[name] = [known.get(one, plain(one)) for one in many]
            rows = windows.setdefault(window, {})
            roles = rows.get(str(row["session_id"]), {}).get("roles", "") + role[:2]
            rows[str(row["session_id"])] = session | {"roles": roles}
    return {"vocabularies": vocabularies, "sessions": windows}


def plain(value):
    """Return a value that JSON knows, numbers to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return value if isinstance(value, int | str | None) else str(value)


def ranks_written():
    """Return min(rank, 101) by window and session, 0 for targets that are no candidates."""
    found = {}
    for path in sorted(Path("results/ranks").glob("*.parquet")):
        table = pq.ParquetFile(path).read().to_pydict()
        for session, rank in zip(table["session_id"], table["rank"], strict=True):
            found.setdefault(path.stem, {}).setdefault(str(session), []).append(min(rank or 0, 101))
    return found


def outcome(tree, folder, models):
    """Run the stages of a tree in a round's folder; return what they wrote, or the refusal."""
    os.chdir(folder)
    found = {}
    try:
        run(tree, "download", "preprocess")
        found |= windows_written()
        for number, (name, remind) in enumerate(models):
            shutil.copy(f"params-{number}.yaml", "params.yaml")
            run(tree, "train")
            found[f"ranks of {name} {remind}"] = ranks_written()
    except RuntimeError as error:
        found["refused"] = str(error)
    except Exception:  # noqa: BLE001
        found["crashed"] = traceback.format_exc()[-1500:]
    return found


def work(tree):
    """Answer each line of the input, a folder with its models, by one line of what came out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.insert(0, str(tree / "src"))
    for line in sys.stdin:
        answers.write(json.dumps(outcome(tree, *json.loads(line))) + "\n")
        answers.flush()


def differences(old, new, where=""):
    """Yield a line for each place where two outcomes differ, at most a few for each."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        for key in keys[:3]:
            yield from differences(old.get(key), new.get(key), f"{where}/{key}")
        if len(keys) > 3:
            yield f"{where}: {len(keys) - 3} more"
    else:
        yield f"{where}: {str(old)[:400]} | {str(new)[:400]}"


def compared(old, new):
    """Yield a line for each difference of two outcomes; the words of refusals may differ."""
    for side, found in (("old", old), ("new", new)):
        if "crashed" in found:
            yield f"{side} crashed: {found['crashed']}"
    refused = [side.get("refused", "accepted") for side in (old, new)]
    if len({text == "accepted" for text in refused}) > 1:
        yield f"refused by one: {refused[0]} | {refused[1]}"
    parts = [{key: side[key] for key in side if key not in {"refused", "crashed"}}
             for side in (old, new)]  # fmt: skip
    yield from differences(*parts)


def round_of(trees, workers, seed):
    """Run one round; return whether the trees agree."""
    of, found = drawn(seed), {}
    with tempfile.TemporaryDirectory() as scratch:
        for side, tree in trees.items():
            folder = Path(scratch, side)
            folder.mkdir()
            WRITERS[side](tree, folder, of)
            workers[side].stdin.write(json.dumps([str(folder), of["models"]]) + "\n")
            workers[side].stdin.flush()
            found[side] = json.loads(workers[side].stdout.readline())
    lines = list(compared(found["old"], found["new"]))
    n_sessions = sum(map(len, found["old"].get("sessions", {}).values()))
    refused = found["old"].get("refused", "")[:200].strip().replace("\n", " ")
    said = "DIFFERS" if lines else f"same, {n_sessions} sessions"
    print(f"seed {seed}: {said} {refused}", flush=True)
    if lines:
        settings = {key: value for key, value in of.items() if not key.endswith("rows")}
        print("\n".join([f"  {line}" for line in lines]), f"  {json.dumps(settings)}", sep="\n")
        print(f"  again: --seed {seed} --rounds 1", flush=True)
    return not lines


def main():
    """Compare two trees, or work for one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("--old", "--new", "--worker"):
        parser.add_argument(name, type=lambda text: Path(text).resolve())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker)
    trees, workers = {"old": options.old, "new": options.new}, {}
    for side, tree in trees.items():
        environment = os.environ | {"PYTHONPATH": str(tree / "src")}
        with Path(tempfile.gettempdir(), f"differential-{side}.log").open("w") as log:
            workers[side] = subprocess.Popen(
                [sys.executable, __file__, "--worker", str(tree)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=environment,
            )  # fmt: skip
    agree = [round_of(trees, workers, options.seed + n) for n in range(options.rounds)]
    print(f"{sum(agree)} of {len(agree)} rounds agree")
    for worker in workers.values():
        worker.stdin.close()
    return not all(agree)


if __name__ == "__main__":
    sys.exit(main())
