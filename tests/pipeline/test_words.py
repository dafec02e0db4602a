"""Words that the project no longer uses: each has a term that the field knows and searches for.

    python tests/pipeline/test_words.py [word]

counts them, or prints the lines of one. Ambiguous words are left to the reader.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "stages", "tests", "benchmarks", "docs")
PAGES = ("README.md", "CONTRIBUTING.md", "Makefile")
RETIRED = {
    # Archaisms and riddles.
    "anew": "again",
    "begun": "started",
    "heirs?": "successor",
    "mend(s|ed|ing)?": "repair, fix",
    "thereby": "so",
    "wherein": "in which",
    "whoever": "who",
    "told": "broadcast, described, error_context",
    "what (it|they|this|that) (came|comes|come) to": "a noun: result, state, score",
    "(come|comes|came) to the same": "equals",
    "stands? (at|by|beside|behind)": "is",
    # Models and training.
    "bod(y|ies) (of|for|from|with|that|which|reads|sees)": "backbone",
    "bodies": "backbones",
    "counted models?": "baseline",
    "guesses": "generator sample",
    "learners?": "trainer",
    "(?<!of )courses?(?! of (a|the|events))": "window schedule",
    "measur(e|es|ed|ing) (\\w+ )?windows?": "evaluate",
    "n_measured|measured_in|measures/|measured\\.json": "evaluated",
    "optimisers?": "optimizer",
    "questions?": "prediction positions",
    "zoo": "Hugging Face backbones",
    # Several processes.
    "all_told|\\w+_told": "broadcast; error_context",
    "(collected|crossed|gathered|summed)(?=\\()": "scatter, all_to_all, all_gather, all_reduce",
    "dealt": "scatter",
    "(?<!n_)draws(?=[.:])": "StepRandom, rng",
    "handed back|handed_back": "reverse all_to_all",
    "(?<!decimal )places": "index, position; launcher environment",
    "meetings?": "rendezvous",
    "(share[sd]?|sharing)( \\w+)? out": "shard",
    # Data and caching.
    "admitted": "above min_count",
    "census": "quality counters, value counts",
    "judged": "checked, evaluated",
    "shelf|shelves": "cache usage",
    "remember(s|ed|ing)?": "carry-over lookup",
    "settled": "already finalised",
    "standing windows?": "kept window",
    "tall(y|ies)": "counters",
    # Tracking and errors.
    "(?<!job_)executions?": "pipeline run",
    "packing": "model packaging",
    "patience": "timeout",
    "refuse_\\w+": "validate_*, check_*",
    "shipping": "background sync",
    '(?<!")verdicts?(?!")': "summary",
}
"""Patterns of whole words (an underscore separates too), in any case, each with its replacement."""


def texts():
    """All files of prose and source but this one."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    pages = [ROOT / page for page in PAGES]
    kinds = {".py", ".md", ".j2", ".sh", ".yaml"}
    kept = [path for path in found if path.suffix in kinds and path != Path(__file__)]
    return sorted([*kept, *pages])


def occurrences():
    """Lines by pattern: {"told": ["README.md:3: ...", ...]}."""
    patterns = {
        word: re.compile(rf"(?<![a-z])(?:{word})(?![a-z])", re.IGNORECASE) for word in RETIRED
    }
    found = defaultdict(list)
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for word, pattern in patterns.items():
                if pattern.search(line):
                    found[word].append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    return found


@pytest.mark.slow
def test_retired_words_are_gone():
    lines = [f"{line}  ({RETIRED[word]})" for word, at in occurrences().items() for line in at]
    assert lines == []


if __name__ == "__main__":
    counted = occurrences()
    for word in sys.argv[1:]:
        sys.stdout.write("\n".join(counted[word]) + "\n")
    if len(sys.argv) == 1:
        for word in sorted(RETIRED, key=lambda each: -len(counted[each])):
            sys.stdout.write(f"{len(counted[word]):5,}  {word}  ->  {RETIRED[word]}\n")
