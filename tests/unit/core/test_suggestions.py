"""Suggestions for misspelt names."""

from dayahead.core.suggestions import did_you_mean, other_spelling


def test_the_most_similar_names_come_first():
    known = ["epochs", "epoch_size", "seed"]
    assert did_you_mean("epoch", known) == "did you mean epochs or epoch_size?"
    assert did_you_mean("epoch", known, most=1) == "did you mean epochs?"


def test_nothing_is_said_of_a_name_like_no_other():
    assert did_you_mean("zzz", ["epochs"]) == ""


def test_another_spelling_differs_in_case_and_signs_or_as_much_as_is_allowed():
    known = ["user_id", "item_id"]
    for name in ("userid", "User-ID", "user_id"):
        assert other_spelling(name, known) == "user_id"
    assert other_spelling("usr_id", known) == other_spelling("", known) == ""
    assert other_spelling("usr_id", known, at_least=0.9) == "user_id"
    assert other_spelling("user_kind", known, at_least=0.9) == ""
