"""containers/monitoring: rules that Prometheus accepts, of metrics that a service has."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import Histogram

from dayahead.config.loading import read_yaml
from dayahead.serve.metrics import ENDPOINTS, Metrics

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "containers" / "monitoring"
RULES = FOLDER / "rules.yaml"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
LABELS_OF_PROMETHEUS = {"job", "instance", "le"}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus"
)


def promtool(*words):
    return subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)


def alerts():
    return [rule for group in read_yaml(RULES)["groups"] for rule in group["rules"]]


def expressions():
    """All of the rules and of the dashboard's panels."""
    board = json.loads((FOLDER / "dashboard.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries = [each["query"] for each in board["templating"]["list"]]
    return [*(rule["expr"] for rule in alerts()), *found, *queries]


def series():
    """Names of all series of a service, by the name of their family."""
    families = Metrics().registry.collect()
    return {each.name: {each.name + end for end in SUFFIXES[each.type]} for each in families}


def labels():
    return {name for each in vars(Metrics()).values() for name in getattr(each, "_labelnames", ())}


def test_every_metric_is_one_that_a_service_exports():
    named = {name for each in expressions() for name in re.findall(r"\bdayahead_\w+", each)}
    assert named - set().union(*series().values()) == set()
    # And none is left out.
    assert [family for family, names in series().items() if not names & named] == []


def test_every_label_and_endpoint_is_one_that_the_metrics_have():
    texts = expressions()
    used = {name for each in texts for name in re.findall(r"(\w+)=~?\"", each)}
    used |= {
        name.strip()
        for each in texts
        for names in re.findall(r"by \(([^)]*)\)", each)
        for name in names.split(",")
    }
    assert used - labels() - LABELS_OF_PROMETHEUS == set()
    named = {name for each in texts for name in re.findall(r"endpoint=\"([^\"]*)\"", each)}
    assert named <= {*ENDPOINTS}
    buckets = {name for each in texts for name in re.findall(r"(dayahead_\w+)_bucket", each)}
    histograms = {e._name for e in vars(Metrics()).values() if isinstance(e, Histogram)}
    assert buckets <= histograms


def test_what_panels_divide_and_increases_count_is_there_from_the_start():
    # A series that begins with its first event hides that one from increase().
    text = Metrics().text().decode()
    for name, results in (
        ("reloads", ("served", "refused")),
        ("sessions", ("known", "cold", "error")),
    ):
        assert [r for r in results if f'{name}_total{{result="{r}"}} 0.0' not in text] == []
    # Statuses have no list: the share of failures is 0 before the first.
    [share] = [each for each in expressions() if 'status=~"5..' in each]
    assert "or vector(0)" in share


def test_the_dashboard_has_no_panel_over_another():
    board = json.loads((FOLDER / "dashboard.json").read_text())
    cells = [
        (x, y)
        for panel in board["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len({*cells})
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@needs_promtool
def test_prometheus_accepts_the_rules():
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(alerts())} rules found" in done.stdout


REQUESTS = "dayahead_requests_total"
SECONDS = "dayahead_request_seconds_bucket"
TROUBLES = {
    "DayaheadDown": [("up", {"job": "dayahead"}, "0x5000")],
    "DayaheadFails": [
        (REQUESTS, {"status": "200"}, "0+95x5000"),
        (REQUESTS, {"status": "500"}, "0+5x5000"),
    ],
    "DayaheadOverloaded": [
        (REQUESTS, {"status": "200"}, "0+95x5000"),
        (REQUESTS, {"status": "503"}, "0+5x5000"),
    ],
    "DayaheadSlow": [
        (SECONDS, {"endpoint": "/recommend", "le": "0.25"}, "0+90x5000"),
        (SECONDS, {"endpoint": "/recommend", "le": "0.5"}, "0+100x5000"),
        (SECONDS, {"endpoint": "/recommend", "le": "+Inf"}, "0+100x5000"),
    ],
    "DayaheadSessionsUnknown": [
        ("dayahead_sessions_total", {"result": "known"}, "0+1x5000"),
        ("dayahead_sessions_total", {"result": "cold"}, "0+2x5000"),
    ],
    "DayaheadModelRefused": [("dayahead_reloads_total", {"result": "refused"}, "0+1x5000")],
    "DayaheadModelOld": [("dayahead_model", {"version": "old"}, "1x5000")],
    "DayaheadEventsLate": [("dayahead_counted_until_seconds", {}, "1x5000")],
    "DayaheadEventsRefused": [
        ("dayahead_events_total", {"result": "accepted"}, "0+9x5000"),
        ("dayahead_events_total", {"result": "refused"}, "0+1x5000"),
    ],
    "DayaheadTrialFails": [("dayahead_fallbacks_total", {}, "0+1x5000")],
    "DayaheadListsLost": [("dayahead_lists_total", {"result": "lost"}, "0+1x5000")],
    "fine": [
        ("up", {"job": "dayahead"}, "1x5000"),
        (REQUESTS, {"status": "200"}, "0+1000x5000"),
        (REQUESTS, {"status": "503"}, "0+1x5000"),
        (SECONDS, {"endpoint": "/recommend", "le": "0.25"}, "0+1000x5000"),
        (SECONDS, {"endpoint": "/recommend", "le": "+Inf"}, "0+1001x5000"),
        ("dayahead_sessions_total", {"result": "known"}, "0+9x5000"),
        ("dayahead_sessions_total", {"result": "cold"}, "0+1x5000"),
        ("dayahead_reloads_total", {"result": "refused"}, "1x5000"),
        ("dayahead_model", {"version": "new"}, "_x1000 1x4000"),
        ("dayahead_counted_until_seconds", {}, "0+60x5000"),
        ("dayahead_events_total", {"result": "accepted"}, "0+99x5000"),
        ("dayahead_events_total", {"result": "refused"}, "0+1x5000"),
        ("dayahead_fallbacks_total", {}, "2x5000"),
        ("dayahead_lists_total", {"result": "lost"}, "3x5000"),
    ],
}
"""Series of one value a minute, by the alert that they raise. Their service has that name, too."""


@needs_promtool
@pytest.mark.slow  # promtool evaluates three days
def test_each_alert_is_raised_by_its_trouble_alone(tmp_path):
    inputs = []
    for instance, given in TROUBLES.items():
        for name, labels, values in given:
            text = ",".join(f'{key}="{value}"' for key, value in labels.items())
            inputs.append({"series": f'{name}{{instance="{instance}",{text}}}', "values": values})
    query = 'count by (alertname, instance) (ALERTS{alertstate="firing"})'
    expected = [
        {"labels": f'{{alertname="{name}",instance="{name}"}}', "value": 1}
        for name in TROUBLES
        if name != "fine"
    ]
    after_three_days = {"expr": query, "eval_time": "74h", "exp_samples": expected}
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": [after_three_days]}
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "tests.yaml").write_text(json.dumps(content))
    done = promtool("test", "rules", tmp_path / "tests.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {*TROUBLES} == {"fine", *(rule["alert"] for rule in alerts())}
