"""DVC's own files of each test in a folder of its own."""

import pytest


@pytest.fixture(autouse=True)
def site_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    monkeypatch.delenv("DVC_ROOT", raising=False)
