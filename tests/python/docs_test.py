"""The pages say what the code has: options, variables, reasons, files and links."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import braze

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("docs/*.md")),
    *(
        ROOT / name
        for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/README.md", "examples/README.md")
    ),
]
TABLES = (ROOT / "docs/options.md").read_text()


def sources(*patterns):
    return [(f, f.read_text(errors="replace")) for p in patterns for f in sorted(ROOT.glob(p)) if f.is_file()]


def read_variables():
    """Names of variables that the code reads: getenv, is_set, os.environ, ${...} in scripts; and those of the build."""
    found = set()
    for _, text in sources("src/**/*.cpp", "src/**/*.h"):
        found |= set(re.findall(r'(?:getenv|is_set)\("(BRAZE_\w+)"', text))
    for _, text in sources(
        "python/**/*.py", "tests/python/*.py", "tests/filetests/*.py", "tools/*.py", "benchmarks/*.py"
    ):
        found |= set(re.findall(r'environ(?:\.get\(|\[)"(BRAZE_\w+)"(?!\] *=)', text))
    for _, text in sources("tools/*.sh", "Makefile"):
        found |= set(re.findall(r"\$\{(BRAZE_\w+)", text))
    for _, text in sources("CMakeLists.txt"):
        found |= set(re.findall(r"^(?:option\(|set\()(BRAZE_\w+) .*(?:ON|OFF|CACHE)", text, re.M))
    return found


def test_variables():
    told = set(re.findall(r"`(BRAZE_[A-Z_]+)`", TABLES))
    assert told == read_variables()


def test_variables_elsewhere_are_told_there():
    told = set(re.findall(r"BRAZE_[A-Z_]+[A-Z]", TABLES))
    for page in PAGES:
        mentioned = set(re.findall(r"\b(BRAZE_[A-Z_]+[A-Z])=", page.read_text()))
        assert mentioned <= told, f"{page.name}: {mentioned - told}"


def test_options():
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.+) \|$", TABLES.split("## Environment")[0], re.M)
    table = re.findall(
        r'^BRAZE_OPTION\([\w:]+, (\w+), ([\w:.]+), "(.+)"\)$', (ROOT / "src/base/options.def").read_text(), re.M
    )
    plain = lambda v: {"true": "True", "false": "False"}.get(v, f'"{v.split("::")[1].lower()}"' if "::" in v else v)
    assert rows == [(name, plain(default), text) for name, default, text in table]
    for name, default, _ in rows:
        braze.compile(lambda x: x, options={name: eval(default)})
    with pytest.raises(ValueError) as refused:
        braze.compile(lambda x: x, options={"no_such_option": 1})
    assert all(name in str(refused.value) for name, _, _ in rows)


def test_log_topics():
    refused = subprocess.run(
        [sys.executable, "-c", "import braze"],
        env=dict(os.environ, BRAZE_LOGS="no_such_topic"),
        capture_output=True,
        text=True,
    ).stderr
    told = re.search(r"`BRAZE_LOGS` \| topics, by commas: (.*?) \|", TABLES)[1]
    accepted = re.search(r"accepted: ([\w, ]+)", refused)[1]
    assert re.findall(r"`(\w+)`", told) == accepted.split(", ")


def test_every_reason_is_given_somewhere():
    names = re.findall(r"^BRAZE_REASON\((\w+),", (ROOT / "src/base/reasons.def").read_text(), re.M)
    code = "".join(text for _, text in sources("src/**/*.cpp", "src/**/*.h"))
    assert names and [n for n in names if f"Reason::{n}" not in code] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_a_page_names_exist(page):
    text = page.read_text()
    named = {
        m
        for m in re.findall(r"`((?:src|python|tests|tools|docs|benchmarks|cmake)/[\w./-]+)`", text)
        if not m.endswith("NAME")
    }
    missing = [m for m in sorted(named) if not (ROOT / m).exists() and not list(ROOT.glob(m + "*"))]
    links = [m for m in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if not (page.parent / m).exists()]
    assert not missing and not links, (missing, links)
