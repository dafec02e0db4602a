"""The project is found from any folder in which a user or DVC starts something."""

from dayahead.core.project import cache_root, project_root


def test_in_a_copy_made_by_dvc_the_main_project_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    assert project_root() == tmp_path
    assert cache_root() == tmp_path / ".dayahead"


def test_from_a_folder_inside_the_project_is_found(tmp_path, monkeypatch):
    monkeypatch.delenv("DVC_ROOT", raising=False)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert project_root() == tmp_path


def test_outside_a_project_it_is_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert project_root() == tmp_path
