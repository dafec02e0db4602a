"""Modules imported at first use."""

import os

import pytest

from dayahead.core.lazy import lazy_module


def test_a_lazy_module_is_imported_at_first_use(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_to_import.py").write_text("import os; os.environ['IMPORTED'] = '1'; x = 5")
    monkeypatch.setenv("IMPORTED", "0")
    module = lazy_module("slow_to_import")
    assert os.environ["IMPORTED"] == "0"
    assert (module.x, os.environ["IMPORTED"]) == (5, "1")
    assert lazy_module("slow_to_import") is module
    with pytest.raises(ModuleNotFoundError):
        lazy_module("slow_to_import_nonesuch")
