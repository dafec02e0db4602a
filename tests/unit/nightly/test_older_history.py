"""A history that an older version has written is read, shown, and gone on with."""

import shutil
from pathlib import Path

import pytest

from dayahead.core.errors import ConfigError
from dayahead.core.files import write_json
from dayahead.nightly.history import History
from dayahead.nightly.status import status_lines
from support.pretended_nights import pretended_night

HISTORY = Path(__file__).parents[2] / "older" / "history.jsonl"
MODELS = {"current": "2026-01-04-165596d9", "previous": "2026-01-03-d3c05910"}


@pytest.fixture
def night(root):
    """A project as that version left it: two nights that published, and one that was refused."""
    (root / "nights").mkdir()
    shutil.copy(HISTORY, root / "nights" / "history.jsonl")
    for link, name in MODELS.items():
        content = {"window": name[:10], "fitted": [1, 1]}
        write_json(root / "published" / name / "config.json", content)
        (root / "published" / link).symlink_to(name)
    return pretended_night(root)


def test_it_is_read_and_shown(night):
    state = night.history.read()
    assert [each.kind for each in state.decisions] == ["published", "published", "refused"]
    assert state.published == (MODELS["current"], MODELS["previous"])
    lines = [*status_lines(state, night.publications, None)]
    assert lines[0].startswith(f"serving   {MODELS['current']} since ")
    assert "published for window 2026-01-04" in lines[0]


def test_the_night_after_the_upgrade_says_what_to_do_and_then_publishes(night, root):
    night.pipeline.deliver_days(5)
    with pytest.raises(ConfigError, match="dayahead nightly --adopt") as error:
        night.run()
    assert "memory." in str(error.value)  # settings that it did not have
    outcome = night.run(adopt=True)
    assert (outcome.outcome, outcome.window) == ("published", "2026-01-05")
    state = History(root / "nights").read()
    assert state.published == (outcome.current, MODELS["current"])
    assert night.rollback("by hand").current == MODELS["current"]
    assert MODELS["previous"] in night.history.page.read_text()
