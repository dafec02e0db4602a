"""The file of a data set whose log names users."""

import json


def dataset_of_users(urls=("a.csv",), user="user", **sessions):
    """Return its text; sessions are those of a column, unless `gap_minutes` separates them."""
    columns = {"item_id": {"column": "item", "type": "int"}}
    columns |= {"user_id": user} if user else {}
    columns |= {} if "gap_minutes" in sessions else {"session_id": "session"}
    sections = {
        "description": "a shop",
        "licence": "none",
        "source": {"urls": list(urls)},
        "columns": columns,
        "time": {"column": "time"},
        "sessions": {"repeats": {"rule": "keep", "scope": "session"}, **sessions},
        "features": {},
        "split": {"seed": 1, "train": [0, 1], "valid": [0, 0.5], "test": [0.5, 1]},
    }
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in sections.items())
