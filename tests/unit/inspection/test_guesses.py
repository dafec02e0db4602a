"""What the columns are: times, keys, types, attributes, and the windows that fit."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dayahead.inspection.finding import printable, scalar
from dayahead.inspection.names import name_score, zone_of
from support.inspected_logs import inspected, log_lines

HEADER = "session,item,time"


def of_times(folder, time, **options):
    return inspected(folder, log_lines(header=HEADER, row=f"s{{visit}},{{item}},{time}", **options))


@pytest.mark.parametrize(
    ("time", "unit", "form"),
    [
        ("{second}", "s", None),
        ("{second}250", "ms", None),
        ("{second}250000", "us", None),
        ("{second}250000000", "ns", None),
        ("{second}.25", "s", None),
        ("{when:%Y-%m-%d %H:%M:%S UTC}", "text", None),
        ("{when:%d/%b/%Y:%H:%M:%S +0000}", "text", None),
        ("{when:%d.%m.%Y %H:%M}", "text", "%d.%m.%Y %H:%M"),
        ("{when:%d-%b-%y %H:%M:%S}", "text", "%d-%b-%y %H:%M:%S"),
    ],
)
def test_units_and_formats_are_those_in_which_all_times_are_plausible(tmp_path, time, unit, form):
    # Two hours a visit: 600 rows reach the 20th of March.
    found = of_times(tmp_path, time, n=600)
    assert (found.dataset.time.unit, found.dataset.time.format) == (unit, form)
    assert found.finding("time.column").value == "time"


def test_days_of_excel_need_a_name(tmp_path):
    rows = [f"s{n // 3},{500 + n * n % 11},{45_000 + n // 3 / 4 + n % 3 / 1440}" for n in range(90)]
    found = inspected(tmp_path, "\n".join([HEADER, *rows]))
    assert found.dataset.time.unit == "excel"
    assert "2023-03-15" in found.finding("time.column").reason


@pytest.mark.parametrize("sign", "/.-")
def test_an_unknown_order_of_day_and_month_is_said_and_written_twice(tmp_path, sign):
    """Of two possible readings the one that makes the shorter log is taken."""
    found = of_times(tmp_path, f"{{when:%m{sign}%d{sign}%Y %H:%M:%S}}", n=60)
    ways = [f"%m{sign}%d{sign}%Y %H:%M:%S", f"%d{sign}%m{sign}%Y %H:%M:%S"]
    assert found.dataset.time.format == ways[0]
    assert f'  format: "{ways[0]}"\n  # format: "{ways[1]}"\n' in found.found.text
    finding = found.finding("time.format")
    assert (finding.confidence, finding.reason[:9]) == ("unsure", "NOT KNOWN")


def test_a_day_above_12_proves_the_order(tmp_path):
    found = of_times(tmp_path, "{when:%m/%d/%Y %H:%M:%S}", n=600)
    assert found.dataset.time.format == "%m/%d/%Y %H:%M:%S"
    assert found.finding("time.format").confidence == "certain"
    assert "# format: " not in found.found.text


def test_times_without_offset_have_a_zone_that_is_not_known(tmp_path):
    found = of_times(tmp_path, "{when:%Y-%m-%d %H:%M:%S}")
    assert (found.dataset.time.zone, found.finding("time.zone").confidence) == ("UTC", "unsure")
    german = log_lines(
        n=600, header="sitzung,artikel,zeitpunkt", row="s{visit},{item},{when:%Y-%m-%d %H:%M:%S}"
    )
    found = inspected(tmp_path, german)
    assert found.dataset.time.zone == "Europe/Berlin"
    assert found.finding("time.zone").reason.startswith("NOT KNOWN")
    assert "-S window.timezone=Europe/Berlin" in found.found.options
    assert zone_of(["user", "preis"]) == ("", [])


def test_dates_alone_are_said(tmp_path):
    row = "s{visit},{item},{when:%Y-%m-%d},{when:%H:%M:%S}"
    found = inspected(tmp_path, log_lines(header="session,item,date,clock", row=row))
    assert "join clock to it" in found.finding("time.offset").reason


def test_quiet_hours_hint_at_the_clock_of_the_users(tmp_path):
    """Clicks from 0 to 15 UTC: the middle of the night is at 19 UTC, 4 o'clock at UTC+9."""
    rows = [
        f"{n % 50},{500 + n % 11},{1_709_510_400 + day * 86_400 + n * 270}"
        for day in range(5)
        for n in range(200)
    ]
    found = inspected(tmp_path, "\n".join(["user,item,time", *rows]))
    assert "fewest events about 19:00 of it: the clock of its users may be +9" in found.finding(
        "time.zone"
    ).reason  # fmt: skip


@pytest.mark.parametrize(
    ("items", "kind"),
    [
        ("{item}", "int"),
        ("{item}.0", "int"),
        ("0{item}", "string"),
        ("SKU-{item}", "string"),
        ("{item}{item}{item}{item}{item}{item}{item}{item}", "string"),  # 24 digits
    ],
)
def test_items_are_numbers_only_where_nothing_is_lost(tmp_path, items, kind):
    found = inspected(tmp_path, log_lines(header=HEADER, row=f"s{{visit}},{items},{{second}}"))
    assert found.dataset.columns.item_id.type == kind


def test_sessions_that_users_share_are_of_each_user(tmp_path):
    row = "{user},{visit},{item},{second}"
    lines = log_lines(row=row).splitlines()
    counted = [",".join([user, str(int(visit) // 7), *rest]) for user, visit, *rest in
               (line.split(",") for line in lines)]  # fmt: skip
    found = inspected(tmp_path, "\n".join(["visitor,visit,item,time", *counted]))
    assert found.dataset.columns.session_id == ("visitor", "visit")
    assert found.dataset.columns.user_id == "visitor"
    unique = inspected(tmp_path, "\n".join(["visitor,visit,item,time", *lines]))
    assert unique.dataset.columns.session_id == "visit"


def test_a_session_that_is_its_start_is_of_each_user(tmp_path):
    """As GA4 has it; even where no two users of the sample share one."""
    lines = [
        line.split(",") for line in log_lines(row="u{user},{visit},{item},{second}").splitlines()
    ]
    rows = [f"{u},{1_709_510_400 + int(v) * 7200},{i},{s}" for u, v, i, s in lines]
    found = inspected(tmp_path, "\n".join(["user_pseudo_id,ga_session_id,item_id,ts", *rows]))
    assert found.dataset.columns.session_id == ("user_pseudo_id", "ga_session_id")
    assert found.dataset.time.column == "ts"


def test_users_and_items_without_names_are_found_by_statistics(tmp_path):
    rows = log_lines(header="who,what,moment", row="{user},{item},{second}", n=400)
    found = inspected(tmp_path, rows)
    columns, sessions = found.dataset.columns, found.dataset.sessions
    assert (columns.user_id, columns.item_id.column) == ("who", "what")
    assert (columns.session_id, sessions.gap_minutes) == (None, 30)
    assert found.finding("columns.user_id").confidence == "likely"


def test_a_session_without_a_name_never_comes_back(tmp_path):
    found = inspected(tmp_path, log_lines(header="a,b,c", row="{visit},{item},{second}", n=400))
    assert found.dataset.columns.session_id == "a"


def test_types_of_events_are_counted_and_types_of_items_are_not(tmp_path):
    lines = log_lines(row="s{visit},{item},{second},{n}").splitlines()
    kinds = ["view", "view", "add_to_cart"]
    events = [f"{line.rpartition(',')[0]},{kinds[n % 3]}" for n, line in enumerate(lines)]
    found = inspected(tmp_path, "\n".join(["session,item,time,type", *events]))
    assert found.dataset.columns.event_type == "type"
    assert found.finding("columns.event_type").reason == "2 types: view 80, add_to_cart 40"
    assert "  # where: {type: [view, add_to_cart]}\n" in found.found.text
    items = [f"{line.rpartition(',')[0]},{'ab'[int(line.split(',')[1]) % 2]}" for line in lines]
    found = inspected(tmp_path, "\n".join(["session,item,time,type", *items]))
    assert found.dataset.columns.event_type is None
    assert found.dataset.features["type"].of_item


def test_attributes_of_items_and_of_users_are_distinguished(tmp_path):
    names = "session,item,time,brand,country,price,weight,name,ip"
    lines = [
        line.split(",") for line in log_lines(row="{visit},{item},{second}", n=240).splitlines()
    ]
    rows = [
        f"{s};{i};{t};b{int(i) % 3};{['DE', 'FR'][int(s) % 2]};{int(i) * 3},50;{n / 7};"
        f"Item {i};10.0.0.{s}"
        for n, (s, i, t) in enumerate(lines)
    ]
    found = inspected(tmp_path, "\n".join([names.replace(",", ";"), *rows]))
    features = found.dataset.features
    assert {name: (each.kind, each.of_item) for name, each in features.items()} == {
        "brand": ("categorical", True),
        "country": ("categorical", False),
        "price": ("log_number", False),
        "name": ("categorical", True),
    }
    assert (found.dataset.columns.title, found.dataset.source.decimal) == ("name", ",")
    assert "# ip: not used (personal data)" in found.found.text
    assert "# weight: not used (a number of unknown meaning)" in found.found.text


@pytest.mark.parametrize(
    ("prices", "signs"),
    [
        (("1.234,50", "12,00"), (",", ".")),
        (("1,234.50", "12.00"), (".", ",")),
        (("1 234,5", "12,0"), (",", " ")),
        (("1234", "12"), (".", None)),
    ],
)
def test_signs_of_prices(tmp_path, prices, signs):
    lines = log_lines(row="s{visit};{item};{second};").splitlines()
    rows = [f"{line}{prices[n % 2]}" for n, line in enumerate(lines)]
    found = inspected(tmp_path, "\n".join(["session;item;time;preis", *rows]))
    assert (found.dataset.source.decimal, found.dataset.source.thousands) == signs
    assert found.dataset.features["preis"].kind == "log_number"


def test_what_occurs_twice_is_counted(tmp_path):
    lines = log_lines(row="s{visit},{item},{second}").splitlines()
    found = inspected(tmp_path, "\n".join([HEADER, *lines, *lines[:5]]))
    assert found.finding("sessions.duplicates").reason.startswith("5 of 125 rows equal")
    assert found.finding("sessions.retry_seconds").reason.startswith("5 events")
    assert found.dataset.sessions.duplicates == "keep"
    assert found.dataset.sessions.repeats.rule == "keep"


def test_clicks_without_a_time_are_none_sent_again(tmp_path):
    lines = log_lines(row="s{visit},{item},{second}").splitlines()
    none = [f"s{visit},{item}," for visit, item, _ in (line.split(",") for line in lines[:4])]
    found = inspected(tmp_path, "\n".join([HEADER, *lines, *none, *none]))
    assert "sessions.retry_seconds" not in {each.key for each in found.found.findings}


def test_items_that_are_missing_are_allowed_for(tmp_path):
    lines = log_lines(row="s{visit},{item},{second}").splitlines()
    rows = [line.replace(",500,", ",NULL,") for line in lines]
    found = inspected(tmp_path, "\n".join([HEADER, *rows]))
    share = sum(",NULL," in row for row in rows) / len(rows)
    assert found.dataset.source.nulls == ("", "NULL")
    assert share < found.dataset.quality.nulls["item_id"] < 2 * share + 0.05


@pytest.mark.parametrize(
    ("gap", "n", "window"),
    [
        (timedelta(minutes=10), 3000, "1 day"),  # 144 visits a day
        (timedelta(hours=1), 3000, "7 days"),  # 168 a week
        (timedelta(minutes=2), 2400, "6 hours"),  # 180 in six hours of a day and a bit
        (timedelta(seconds=20), 3000, "1 hour"),  # 180 an hour
    ],
)
def test_windows_hold_about_a_hundred_sessions(tmp_path, gap, n, window):
    rows = [
        f"s{row // 3},{row % 50},{1_709_510_400 + row // 3 * gap.seconds + row % 3}"
        for row in range(n)
    ]
    found = inspected(tmp_path, "\n".join([HEADER, *rows])).found
    assert found.windows.shown == window
    assert 100 < found.windows.sessions < 200
    assert found.windows.n >= 4


def test_hints_are_in_the_last_word_of_a_name():
    scores = {
        name: name_score(name, role)
        for name, role in (("userId", "user_id"), ("shop_user_ref", "user_id"),
                           ("user_agent", "user_id"), ("session_duration", "session_id"),
                           ("events.aid", "item_id"), ("ArtikelNr", "item_id"))
    }  # fmt: skip
    assert list(scores.values()) == [1, 0.5, 0, 0, 1, 1]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_a_value_and_any_comment_a_comment(text):
    written = f"# {printable(text)}\n".replace("\n", " ") + f"\nkey: {scalar(text)}\n"
    assert YAML(typ="safe", pure=True).load(written) == {"key": text}


def test_times_far_from_all_others_do_not_count(tmp_path):
    lines = log_lines(row="s{visit},{item},{second}", n=600).splitlines()
    rows = [*lines, "s1,501,2114380800", "s2,502,-5"]  # 2037, 1969
    found = inspected(tmp_path, "\n".join([HEADER, *rows]))
    assert found.finding("time.between").reason.startswith("2 times of the sample are far")
    assert found.dataset.time.unit == "s"
    assert found.found.windows.n == 17
