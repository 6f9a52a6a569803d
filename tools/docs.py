"""Builds the documentation site: `make docs`, or `make docs ARGS=serve` to look at it while writing.

MkDocs reads one folder, so pages keep their places under build/docs/pages: links between them hold there as they do in the repository. Links
and anchors that lead nowhere are errors. The tool goes into an environment of its own beside the build.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).parents[1]
TOOL = ("mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.26,<2")
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "benchmarks/README.md", "docs/figures.svg")


def stage(folder: pathlib.Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    named = [ROOT / name for name in PAGES]
    for page in [*named, *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*")]:
        if page.is_file():
            to = folder / page.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, to)
    (folder / "index.md").write_text((ROOT / "README.md").read_text().replace("](docs/)", "](docs/get-started.md)"))


def tool(folder: pathlib.Path) -> pathlib.Path:
    """MkDocs with what it needs, installed by pip the first time."""
    program = folder / "bin/mkdocs"
    if not program.exists() or (folder / "asked").read_text().split("\n") != list(TOOL):
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *TOOL], check=True)
        (folder / "asked").write_text("\n".join(TOOL))
    return program


def main() -> int:
    out = ROOT / "build/docs"
    stage(out / "pages")
    what = sys.argv[1:] or ["build", "--strict"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # advice on another tool
    done = subprocess.run([tool(out / "venv"), *what], cwd=ROOT, env=quiet)
    if done.returncode == 0 and "build" in what:
        print(f"the site is in {(out / 'site').relative_to(ROOT)}: open its index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
