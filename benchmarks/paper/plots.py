"""The tables as pictures; of table 3 the distribution of speeds, as the paper's Figure 4."""

from __future__ import annotations

from pathlib import Path

from benchmarks.paper import backends, capture, tables

COLOURS = ["#d9480f", "#f4a261", "#2a6fb0", "#6a4c93", "#2b8a3e", "#8a8f98", "#c2255c"]


def figure(width: float, height: float, columns: int = 1):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    return plt.subplots(1, columns, figsize=(width, height), layout="constrained", squeeze=False)


def captures(rows: list[dict], path: Path):
    rows = [r for r in rows if r["table"] == 1]
    systems = [s for s in capture.SYSTEMS if any(r["system"] == s for r in rows)]
    fig, ((axes,),) = figure(8, 0.4 * len(systems) + 1)
    left = [0.0] * len(systems)
    for status, colour in (("works", "#2b8a3e"), ("wrong", "#c92a2a"), ("fails", "#ced4da")):
        shares = []
        for s in systems:
            own = [r["status"] for r in rows if r["system"] == s]
            shares.append(100 * own.count(status) / len(own))
        axes.barh(systems, shares, left=left, color=colour, label=status)
        left = [a + b for a, b in zip(left, shares)]
    axes.invert_yaxis()
    axes.set_xlabel("% of models")
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    fig.savefig(path, dpi=120)


def bars(table: tables.Table, column: int, label: str, path: Path, base: float = 1.0):
    found = [(row[0], row[column]) for row in table.rows if isinstance(row[column], float)]
    fig, ((axes,),) = figure(8, 0.35 * len(found) + 1)
    axes.barh([f[0] for f in found], [f[1] for f in found], color=COLOURS[2])
    axes.axvline(base, color="#444", lw=0.8)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    fig.savefig(path, dpi=120)


def curve(speeds: list[float], models: int) -> tuple[list[float], list[float]]:
    """From the fastest down: each speed, and the % of all models that reach it."""
    speeds = sorted(speeds, reverse=True)
    return [speeds[0], *speeds], [100 * k / models for k in range(len(speeds) + 1)]


def distribution(rows: list[dict], path: Path):
    """By mode and system the share of all models that are at least so fast: what fails never is."""
    modes = tables.by_mode(rows, 3)
    fig, (all_axes,) = figure(5 * len(modes), 4, len(modes))
    for axes, (mode, group) in zip(all_axes, modes.items()):
        for system, colour in zip(list(backends.SPEED)[1:], COLOURS):
            speeds = list(tables.ratios(group, system, "eager").values())
            if speeds:
                axes.step(*curve(speeds, len(group)), where="post", color=colour, label=system)
        axes.axvline(1, color="#444", lw=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
        axes.set_ylim(0, 102)
        axes.set_title(mode, loc="left")
        axes.set_xlabel("speed, eager = 1")
    all_axes[0].set_ylabel("% of models at least so fast")
    all_axes[0].legend(frameon=False, fontsize=8)
    fig.savefig(path, dpi=120)


def draw(rows: list[dict], made: dict[int, tables.Table], out: Path) -> list[Path]:
    paths = {n: out / f"table{n}.png" for n in made}
    if 1 in made:
        captures(rows, paths[1])
    if 2 in made:
        bars(made[2], -1, "time a call, eager = 1", paths[2])
    if 3 in made:
        distribution(rows, paths[3])
    if 4 in made:
        bars(made[4], 1, f"time without the part over time with it, {made[4].head[1]}", paths[4])
    return list(paths.values())
