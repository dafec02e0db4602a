"""The README names what is there: verbs, settings, files, and every module with its purpose."""

import ast
import re
from pathlib import Path

import pytest
from pipeline.settings_read import SECTIONS, all_leaves

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "dayahead"


def purpose(file):
    words = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    return words.splitlines()[0].removesuffix(".").replace("|", r"\|")


def test_every_module_stands_in_the_table_with_its_own_words():
    modules = [file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py"]
    rows = {f"| `{file.relative_to(PACKAGE)}` | {purpose(file)} |" for file in modules}
    listed = set(re.findall(r"^\| `(?:\w+/)?\w+\.py` \|.*\|$", README, re.MULTILINE))
    assert sorted(rows - listed) == []
    assert sorted(listed - rows) == []


def test_verbs_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    verbs = set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)?)\b(?= |`|$)", README, re.MULTILINE))
    assert {"repro", "test", "ui"} <= verbs
    assert {verb for verb in verbs if f"\n{verb}:" not in makefile} == set()


def test_settings_exist():
    every = set().union(*map(all_leaves, SECTIONS))
    named = set(re.findall(rf"\b(?:{'|'.join(SECTIONS)})\.[a-z_]+\b(?=[=`' ,.:]|$)", README))
    files = {name for name in named if name.rsplit(".", 1)[1] in {"py", "yaml", "safetensors"}}
    assert named - files - every == set()


def test_data_sets_exist():
    names = set(re.findall(r"-S dataset=(\w+)", README)) - {"mine"}
    names |= {Path(path).stem for path in re.findall(r"`datasets/(\w+\.yaml)`", README)} - {"mine"}
    assert names
    assert {name for name in names if not (ROOT / "datasets" / f"{name}.yaml").is_file()} == set()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_within_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert [target for target in targets if not (ROOT / target).exists()] == []
