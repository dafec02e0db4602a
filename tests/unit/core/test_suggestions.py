"""Suggestions for misspelt names."""

from dayahead.core.suggestions import did_you_mean


def test_the_most_similar_names_come_first():
    known = ["epochs", "epoch_size", "seed"]
    assert did_you_mean("epoch", known) == "did you mean epochs or epoch_size?"
    assert did_you_mean("epoch", known, most=1) == "did you mean epochs?"


def test_nothing_is_said_of_a_name_like_no_other():
    assert did_you_mean("zzz", ["epochs"]) == ""
