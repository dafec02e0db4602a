"""Examples at the end of each verb's help: commands to copy, at most 76 columns wide."""

EXAMPLES = {
    "inspect": (
        "dayahead inspect shop.csv --name shop",
        "dayahead inspect shop.csv --items catalogue.csv --name shop",
        "dayahead inspect 'logs/*.jsonl.gz' --name shop --dry-run",
    ),
    "recommend": (
        "dayahead recommend --session 100871,103539",
        "dayahead recommend --top-k 5 --exclude-seen --item 100871 --item 103539",
        "dayahead recommend --events session.csv --past earlier.csv --explain",
        "dayahead recommend --sessions live.parquet --output items.parquet",
    ),
    "similar": (
        "dayahead similar 100871",
        "dayahead similar 100871 103539 -k 5 --by vectors --models published/current",
    ),
    "serve": (
        "dayahead serve",
        "dayahead serve --published published --port 8000",
        "dayahead serve --published published --live",
    ),
    "compare": (
        "dayahead compare HEAD small",
        "dayahead compare A1,A2,A3 B1,B2,B3",
        "dayahead compare results ../other-clone/results --json",
    ),
    "table": (
        "dayahead table HEAD small --names settings",
        "dayahead table gru4rec=A1,A2,A3 memory=B1,B2,B3 --intervals",
        "dayahead table A1 A2 A3 B1 B2 B3 --format latex --output table.tex",
        "dayahead table HEAD small --format csv --metrics ndcg_at_20,recall_at_5",
    ),
    "preset": (
        "dayahead preset",
        "dayahead preset g1/xlnet-mlm",
        "dvc exp run --temp $(dayahead preset g1/xlnet-mlm)",
    ),
    "tune": (
        "dayahead tune",
        "dayahead tune network --trials 40 -j 2 -S window.last=2026-01-06",
        "dayahead tune transformers $(dayahead preset g1/xlnet-mlm)",
        "dvc exp run --temp $(dayahead preset tuned/network)",
    ),
    "nightly": (
        "dayahead nightly",
        "dayahead nightly --dry-run",
        "dayahead nightly --status",
        "dayahead nightly --rollback --reason 'complaints about search'",
        "30 2 * * * cd /srv/shop && .venv/bin/dayahead nightly  # crontab",
    ),
    "summary": ("dayahead summary", "dayahead summary --json"),
    "profile": (
        "dayahead profile",
        "dayahead profile --window 2026-01-03 --first-step 20 --steps 5",
    ),
    "track": ("dayahead track --sync",),
    "cache": ("dayahead cache", "dayahead cache --prune 30"),
}
"""Examples by verb."""


def epilog_of(verb: str) -> str:
    """Return the examples of a verb, as typer shows them: a line each."""
    return "\n\n".join(("Examples:", *EXAMPLES[verb]))
