"""A table of items beside a log: the section that is written reads it as a human would."""

import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import SourceError
from dayahead.dataset.manifest import RawManifest
from dayahead.dataset.schema import load_dataset
from dayahead.download.stage import download
from dayahead.inspection.log import inspect_log
from support.inspected_logs import log_lines

LOG = log_lines(
    header="Sitzung;Zeitpunkt;Artikelnummer;Preis",
    row="v{visit};{when:%d.%m.%Y %H:%M};0{item};{item},50",
)
TITLES = [f"Stück {number} aus Holz" for number in range(40)]
CATALOGUE = "Artikelnummer;Bezeichnung;Marke;Preis;lieferbar_ab;geändert;Lager\n" + "".join(
    f"0{500 + number};{title};{'AÖÜ'[number % 3]};1.{number:03d},25;{number % 28 + 1:02d}.02.2024;"
    f"{number % 28 + 1:02d}.01.2024;{number},5\n"
    for number, title in enumerate(TITLES)
)


@pytest.fixture
def section(tmp_path, monkeypatch):
    """Write log and catalogue, inspect both, and return what was found and the data set."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))

    def section(catalogue, name="katalog.csv", log=LOG):
        (tmp_path / "log.csv").write_text(log)
        content = catalogue if isinstance(catalogue, bytes) else catalogue.encode("cp1252")
        (tmp_path / name).write_bytes(content)
        found = inspect_log([f"{tmp_path}/log.csv"], "shop", [f"{tmp_path}/{name}"])
        (tmp_path / "shop.yaml").write_text(found.text)
        return found, load_dataset("shop", tmp_path)

    return section


def test_a_german_catalogue(section, tmp_path):
    found, dataset = section(CATALOGUE)
    items = dataset.items
    assert (items.source.encoding, items.source.delimiter) == ("cp1252", ";")
    assert (items.source.decimal, items.source.thousands) == (",", ".")
    assert (items.item_id.column, items.item_id.type) == ("Artikelnummer", "string")
    assert (items.available_from, items.available_until, items.time) == ("lieferbar_ab", None, None)
    kinds = {name: (each.kind, each.column) for name, each in items.features.items()}
    # The log has a feature preis of its own.
    assert kinds == {"marke": ("categorical", "Marke"), "item_preis": ("log_number", "Preis")}
    assert items.vectors["content"].columns == ("Bezeichnung", "Marke")
    assert "# Lager: not used (40 values, no category)" in found.text
    assert "not used (times; with items.time a row would hold from then on)" in found.text
    download(dataset, "shop", tmp_path / "raw")
    [part] = RawManifest.read(tmp_path / "raw").items.parts
    rows = pq.read_table(tmp_path / "raw" / part.file).to_pylist()
    assert [row["item_id"] for row in rows] == [f"0{500 + number}" for number in range(40)]
    assert (rows[7]["marke"], rows[7]["item_preis"]) == ("Ö", 1007.25)
    assert rows[7]["content"] == "Stück 7 aus Holz Ö"
    assert f"{rows[7]['available_from']:%Y-%m-%d %H}" == "2024-02-07 23"  # Europe/Berlin


def test_json_with_another_name_of_the_item(section):
    lines = [f'{{"ean": {n}, "code": "0{500 + n}", "until": "2024-05-01", "stock": 1}}\n'
             for n in range(40)]  # fmt: skip
    _, dataset = section("".join(lines), "items.jsonl")
    assert dataset.items.item_id.column == "code"
    assert (dataset.items.features, dataset.items.vectors) == ({}, {})


def test_limits_that_are_not_written_as_the_log_s_times_are_not_used(section):
    found, dataset = section(CATALOGUE.replace(".02.2024", "/02/2024"))
    assert dataset.items.available_from is None
    assert "not used (available_from by its name, but '01/02/2024' is not written" in found.text


def test_items_with_several_rows_are_said(section):
    found, _ = section(CATALOGUE + CATALOGUE.partition("\n")[2][:200])
    [finding] = [each for each in found.findings if each.key == "items.time"]
    assert "rows have the item of another; the last one holds" in finding.reason


def test_a_table_of_other_items_is_refused(section):
    catalogue = CATALOGUE.replace("\n0", "\nX-0")
    message = r"no column of the table of items has the log's items \(Artikelnummer: '\d+'\); it "
    with pytest.raises(SourceError, match=message + r"has Artikelnummer: 'X-0500', Bezeichnung"):
        section(catalogue)


def test_a_table_of_items_alone_is_said_to_belong_beside_its_log(tmp_path):
    (tmp_path / "items.csv").write_text("sku,brand\n1,a\n2,b\n")
    with pytest.raises(SourceError, match="give a table of items beside its log: dayahead inspect"):
        inspect_log([f"{tmp_path}/items.csv"], "shop")


def test_without_a_table_nothing_is_said_of_items(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    assert "items:" not in inspect_log([f"{tmp_path}/log.csv"], "shop").text


def test_no_path_holds_two_points(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "log.csv").write_text(LOG)
    monkeypatch.chdir(tmp_path / "here")
    found = inspect_log(["../log.csv"], "shop")
    assert f"{tmp_path}/log.csv" in found.text
