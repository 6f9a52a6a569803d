"""The pages for users do what they say: their programs run, block after block, and print what stands below them."""

import contextlib
import io
import pathlib
import re

import pytest

import braze

ROOT = pathlib.Path(__file__).parents[2]


def blocks(page):
    """(line, program, text that it prints or None) of a page."""
    text = (ROOT / page).read_text()
    for m in re.finditer(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", text, re.M | re.S):
        yield text[: m.start()].count("\n") + 2, m[1], m[2]


def as_pattern(text):
    """Its lines in order, others between them; `...` stands for anything."""
    lines = [".*".join(map(re.escape, line.split("..."))) for line in text.splitlines()]
    return ".*?".join(lines)


@pytest.mark.parametrize("page", ["README.md", "docs/get-started.md", "docs/training.md", "docs/dynamic-sizes.md"])
def test_page(page, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {"__name__": "__page__"}
    found = list(blocks(page))
    assert found
    for number, (line, program, text) in enumerate(found):
        file = tmp_path / f"block{number}.py"  # so that lines can be quoted
        file.write_text(program)
        exec(compile(program, str(file), "exec"), known)
        told = capfd.readouterr()
        printed = told.err + told.out
        assert text is None or re.search(as_pattern(text), printed, re.S), f"{page}:{line} printed\n{printed}"
    assert braze.set_logs() == ()


def test_every_reason_is_on_the_page():
    page = (ROOT / "docs/troubleshooting.md").read_text()
    rows = re.findall(r'^BRAZE_REASON\((\w+), "(.+?)", "(.+?)"\)', (ROOT / "src/base/reasons.def").read_text(), re.M)
    told = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| ", page, re.M)
    assert rows and told == rows


def test_messages_are_those_of_the_code():
    page = (ROOT / "docs/troubleshooting.md").read_text()
    code = "".join(f.read_text() for p in ("src/**/*.cpp", "python/braze/*.py") for f in ROOT.glob(p))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # texts that go over several lines
    cells = re.findall(r"^\| (`.+?) \| [^|]+ \|$", page.split("## Messages")[1].split("## It is slow")[0], re.M)
    parts = [p for cell in cells for text in re.findall(r"`(.+?)`", cell) for p in re.split(r"\.\.\.", text)]
    parts = [p.strip() for p in parts if len(p.strip()) > 5]
    missing = [p for p in parts if p not in code and p.rstrip(":,") not in code]
    assert len(parts) > 10 and not missing


def test_every_public_name_is_on_the_page_of_the_api():
    told = re.findall(r"^::: braze\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.M)
    assert sorted(told) == sorted(braze.__all__)


def test_every_page_is_in_the_site():
    nav = re.findall(r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert {p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/*.md")} <= set(nav)


def test_modes_of_the_options_page():
    from braze import _api

    rows = re.findall(r'^\| `"([\w-]+)"` \| (.+) \|$', (ROOT / "docs/options.md").read_text(), re.M)
    assert [name for name, _ in rows] == list(_api.MODES)
    for name, text in rows:
        options = re.search(r"`(\{.*?\})`", text)
        assert (_api.with_mode(None, name) or {}) == (eval(options[1]) if options else {})


def test_the_figure_is_drawn_of_the_figures(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks import plot

    text = (ROOT / "benchmarks/README.md").read_text()
    models, calls = plot.inference(text), plot.first_calls(text)
    assert len(models) >= 5 and len(calls) >= 4
    drawn = (ROOT / "docs/figures.svg").read_text()
    for name, *speeds in models:
        assert name in drawn and all(f">{v:.1f}<" in drawn for v in speeds)
    for name, *seconds in calls:
        assert name in drawn and all(f">{v:g} s<" in drawn for v in seconds)
    with contextlib.redirect_stdout(io.StringIO()):
        plot.draw(text, tmp_path / "figures.svg")
    assert (tmp_path / "figures.svg").stat().st_size < 100_000
