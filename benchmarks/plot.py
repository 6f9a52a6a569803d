"""Draws docs/figures.svg from the figures in benchmarks/README.md: `python -m benchmarks.plot`."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
PYTORCH, BRAZE, REPLAYED = "#8a8f98", "#d9480f", "#f4a261"


def table(text, head):
    """Cells of the rows of the table whose first cell of the head begins so."""
    block = re.search(rf"^\| {re.escape(head)}.*?(?=^\s*$)", text, re.M | re.S)[0]
    return [[c.strip() for c in line.strip("|").split("|")] for line in block.splitlines()[2:]]


def inference(text):
    """Speed against eager on a GPU, bf16: name, torch.compile, Braze, Braze with CUDA Graphs."""
    rows = []
    for name, *cells in table(text, "inference |"):
        eager, theirs, ours, replayed = (float(c.split("/")[-1]) for c in cells)
        rows.append((name.split(",")[0], eager / theirs, eager / ours, eager / replayed))
    return rows[3:]  # whole models


def first_calls(text):
    """Seconds to the first result from empty caches: name, torch.compile, Braze."""
    return [
        (name, *(float(c.split("/")[0]) for c in cells))
        for name, *cells in table(text, "first call in a fresh process")
    ]


def draw(text, file):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "svg.hashsalt": "braze",
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(10.5, 3.9), gridspec_kw={"width_ratios": (1.45, 1)}, facecolor="white"
    )

    def bars(axes, rows, kinds, form):
        height = 0.8 / len(kinds)
        for k, (label, colour) in enumerate(kinds):
            values = [r[1 + k] for r in rows]
            at = [i + (k - (len(kinds) - 1) / 2) * height for i in range(len(rows))]
            axes.barh(at, values, height * 0.9, label=label, color=colour)
            for y, v in zip(at, values):
                axes.annotate(
                    form(v), (v, y), (3, 0), textcoords="offset points", va="center", fontsize=7, color="#444"
                )
        axes.set_yticks(range(len(rows)), [r[0] for r in rows])
        axes.invert_yaxis()
        axes.tick_params(length=0)

    bars(
        left,
        inference(text),
        (("torch.compile", PYTORCH), ("Braze", BRAZE), ('Braze, mode="reduce-overhead"', REPLAYED)),
        lambda v: f"{v:.1f}",
    )
    left.axvline(1, color="#444", linewidth=0.8)
    left.set_title("Speed against eager PyTorch (= 1), inference in bf16, NVIDIA H200", fontsize=9, loc="left")
    left.set_xlabel("times eager's speed; longer is faster")
    left.legend(frameon=False, fontsize=8, loc="lower right")
    bars(right, first_calls(text), (("torch.compile", PYTORCH), ("Braze", BRAZE)), lambda v: f"{v:g} s")
    right.set_xscale("log")
    right.set_title("Seconds to the first result, empty caches", fontsize=9, loc="left")
    right.set_xlabel("seconds, logarithmic; shorter is better")
    right.set_xlim(0.01, 120)
    fig.tight_layout()
    fig.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    out = ROOT / "docs/figures.svg"
    draw((ROOT / "benchmarks/README.md").read_text(), out)
    print(f"{out.relative_to(ROOT)}: {out.stat().st_size} bytes")
