"""The verb `profile`: one fit, aside from the results of the study."""

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.errors import ConfigError
from dayahead.core.phases import read_phases
from dayahead.profile import profile_fit
from dayahead.train.checks import select_windows
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import tiny_params
from support.window_folders import bytes_in, day, markov_days, write_window_folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    write_window_folder(tmp_path / "data" / "windows", markov_days(5, 40, 15))
    (tmp_path / "results").mkdir()
    return tmp_path


@pytest.fixture
def studies(monkeypatch):
    """Studies that are not run, but kept here."""
    kept = []
    monkeypatch.setattr("dayahead.profile.train", kept.append)
    return kept


def profiled(project, into="build", **profile):
    return profile_fit(tiny_params({"profile": profile}), project, project / into)


@pytest.mark.long
@pytest.mark.parametrize(
    ("window", "last"),
    [
        *((day(0), 1), (day(4), 4)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((None, 3), (day(3), 4))),
    ],
)
def test_only_the_windows_that_it_takes_are_run(project, window, last):
    folder = profiled(project, **({"window": window} if window else {}))
    rows = {row.phase: row for row in read_phases(folder / "phases.csv")}
    assert rows["fit"].calls == 1
    assert ("evaluate" in rows) == (window != day(4))
    evaluated = sorted(path.stem for path in (project / "build" / "ranks").iterdir())
    assert evaluated == [day(number) for number in range(1, last + 1)]
    assert bytes_in(project / "results") == {}


@pytest.mark.parametrize(("window", "last"), [(None, day(4)), (day(1), day(4)), (day(3), day(4))])
def test_a_window_is_evaluated_that_no_statistic_was_fitted_on(project, studies, window, last):
    write_window_folder(project / "data" / "windows", markov_days(6, 40, 15), fitted_on=4)
    profiled(project, window=window)
    [params] = [study.params for study in studies]
    assert (params.profile.window, params.window.last) == (window or day(3), last)
    assert select_windows(WindowFolder(project / "data" / "windows"), params)


def test_sessions_of_later_windows_may_be_those_of_attention(project, studies):
    params = tiny_params({"evaluation": {"attention_of": ["4-000000"], "split": "all"}})
    profile_fit(params, project, project / "build")
    [short] = [study.params for study in studies]
    assert short.window.last == day(3)
    assert select_windows(WindowFolder(project / "data" / "windows"), short)


@pytest.mark.slow
def test_fits_are_those_of_the_study(project):
    profiled(project, into="first", window=day(2))
    fits = sorted(path.name for path in (project / ".dayahead" / "fits").glob("*"))
    profiled(project, into="second", window=day(2))
    assert sorted(path.name for path in (project / ".dayahead" / "fits").glob("*")) == fits


def test_a_window_that_is_none_is_refused(project):
    with pytest.raises(ConfigError, match=r"profile\.window: 2027-01-01 is not among"):
        profiled(project, window="2027-01-01")


@pytest.mark.parametrize("into", ["results", "other/../results"])
def test_results_are_no_folder_for_a_profile(project, into):
    ranks = project / "results" / "ranks" / "2026-01-02.parquet"
    ranks.parent.mkdir()
    ranks.touch()
    with pytest.raises(ConfigError, match=r"^profile: .*results holds the results of the study"):
        profiled(project, into=into)
    assert ranks.exists()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--steps", "100000", "profile: steps: .* less than or equal to 65536 .got 100000."),
        ("--steps", "0", "profile: steps: .* greater than or equal to 1 "),
        ("--first-step", "20000000", "profile: first_step: .* less than or equal to 10000000 "),
        ("--first-step", "-1", "profile: first_step: .* greater than or equal to 0 "),
    ],
)
def test_options_have_the_bounds_of_the_settings(monkeypatch, option, value, message):
    monkeypatch.setattr("dayahead.commands.profile.load_params", lambda _: tiny_params({}))
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(app, ["profile", option, value], catch_exceptions=False)


def test_options_come_before_the_settings(project, monkeypatch):
    asked = []

    def profile(params, root, into):
        asked.append((params.profile, root, into))
        return into / "profile"

    monkeypatch.setattr("dayahead.profile.profile_fit", profile)
    monkeypatch.setattr("dayahead.commands.profile.load_params", lambda _: tiny_params({}))
    options = ["--window", "w", "--first-step", "7", "--steps", "3", "--into", "here"]
    done = CliRunner().invoke(app, ["profile", *options])
    [(config, root, into)] = asked
    assert (config.window, config.first_step, config.steps) == ("w", 7, 3)
    assert (root, str(into)) == (project, "here")
    assert "here/profile" in done.stdout
