import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dayahead.sharing.threads import run_all


def test_an_error_is_raised_when_nothing_runs_any_more():
    has_started, ended = threading.Event(), []

    def work(item):
        if item == "fails":
            has_started.wait(60)
            raise ValueError("the first")
        has_started.set()
        time.sleep(0.3)
        ended.append(item)

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(ValueError, match="the first"):
            run_all(pool, work, ["fails", "runs"])
        assert ended == ["runs"]
