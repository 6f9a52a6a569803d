"""From the rows of measurements to tables: columns, cells as numbers or text, notes."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable

from benchmarks.paper import backends, capture
from benchmarks.run import geomean

Cell = str | int | float | None


@dataclasses.dataclass
class Table:
    title: str
    head: list[str]
    rows: list[list[Cell]]
    notes: list[str] = dataclasses.field(default_factory=list)


def text(cell: Cell) -> str:
    return (
        "" if cell is None else cell if isinstance(cell, str) else str(cell) if isinstance(cell, int) else f"{cell:.3g}"
    )


def show(table: Table):
    from rich import box
    from rich.console import Console
    from rich.table import Table as Shown

    shown = Shown(title=table.title, box=box.MARKDOWN, title_justify="left")
    for k, head in enumerate(table.head):
        shown.add_column(head, justify="left" if k == 0 else "right", no_wrap=True)
    for row in table.rows:
        shown.add_row(*map(text, row))
    console = Console(width=200, highlight=False)
    console.print(shown)
    for note in table.notes:
        console.print(note, soft_wrap=True)


def share(part: Iterable, whole: Iterable) -> str:
    part, whole = len(list(part)), len(list(whole))
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else ""


def mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return statistics.fmean(values) if values else None


def captures(rows: list[dict]) -> Table:
    head = [
        "system",
        "works",
        "wrong",
        "fails",
        "another batch size",
        "one graph",
        "no graph",
        "graphs",
        "breaks",
        "operators a graph",
        "s",
    ]
    table = Table("Table 1: capture", head, [])
    rows = [r for r in rows if r["table"] == 1]
    for system in capture.SYSTEMS:
        own = [r for r in rows if r["system"] == system]
        if not own:
            table.notes.append(f"{system}: not measured here")
            continue
        good = [r for r in own if r["status"] == "works"]
        of = lambda status: share((r for r in own if r["status"] == status), own)
        whole, none = (sum(r["graphs"] == n and not r["breaks"] for r in good) for n in (1, 0))
        means = [mean(r[what] for r in good) for what in ("graphs", "breaks")]
        operators = mean(r["operators"] / r["graphs"] for r in good if r["graphs"])
        seconds = statistics.median(r["seconds"] for r in good) if good else None
        resized = sum(r["resized"] == "works" for r in good)
        counts = [of("works"), of("wrong"), of("fails"), resized, whole, none]
        table.rows.append([system, *counts, *means, operators, seconds])
    table.notes += [
        "works: the results are eager's, of the inputs that were captured and of two others of the same sizes",
        "wrong: other results, such as of a trace that ignores a branch",
        "of those that work: how many do at another batch size, too (exports are of one), are one graph without breaks, or run without any "
        "graph; means of graphs, breaks and operators a graph; the median of the seconds of capture and a first call",
    ]
    table.notes += [
        f"{r['system']} is wrong of {r['model']}: {r['why']}"
        for r in rows
        if r["status"] == "wrong" and r["system"] in ("Braze", "torch.compile")
    ]
    return table


def ratios(rows: list[dict], system: str, base: str, reduce=min) -> dict[str, float]:
    """By model, how many times as long `base` takes as `system`."""
    out = {}
    for r in rows:
        ours, theirs = (r["systems"].get(s, {}).get("rounds") for s in (system, base))
        if ours and theirs and "failed" not in r["systems"][system]:
            out[r["model"]] = reduce(theirs) / reduce(ours)
    return out


def overheads(rows: list[dict]) -> Table:
    rows = [r for r in rows if r["table"] == 2]
    groups = list(dict.fromkeys(r["model"].rpartition("/")[0] for r in rows))
    table = Table("Table 2: overhead of captured graphs that run as they are", ["system", "works", *groups, "all"], [])
    for system in backends.OVERHEAD:
        if system == "eager":
            continue
        found = ratios(rows, system, "eager", statistics.median)
        inverse = lambda own: None if not own else 1 / geomean(own)
        by_group = [inverse([v for m, v in found.items() if m.rpartition("/")[0] == g]) for g in groups]
        table.rows.append([system, share(found, rows), *by_group, inverse(list(found.values()))])
    table.notes.append("times eager's time a call, geometric mean of the medians; below 1 is faster")
    return table


def speeds(rows: list[dict]) -> Table:
    head = ["mode", "system", "works", "geomean", "of medians", "failures as 1", "least", "most"]
    table = Table("Table 3: speed, eager = 1", head, [])
    for mode, group in by_mode(rows, 3).items():
        for system in backends.SPEED:
            if system == "eager" or not any(system in r["systems"] for r in group):
                continue
            best, middle = (ratios(group, system, "eager", reduce) for reduce in (min, statistics.median))
            everything = geomean([best.get(r["model"], 1.0) for r in group])
            least, most = ((f"{v:.2f} {m}" if best else "") for m, v in extremes(best))
            table.rows.append(
                [
                    mode,
                    system,
                    share(best, group),
                    geomean(best.values()),
                    geomean(middle.values()),
                    everything,
                    least,
                    most,
                ]
            )
    return table


def extremes(found: dict[str, float]) -> list[tuple[str, float]]:
    pairs = sorted(found.items(), key=lambda p: p[1]) or [("", 0.0)]
    return [pairs[0], pairs[-1]]


def parts(rows: list[dict]) -> Table:
    """What each part of Braze is worth: time without it over time with it."""
    systems, absent = backends.ablation()
    modes = by_mode(rows, 4)
    head = ["part"] + [f"{mode}{what}" for mode in modes for what in ("", ", most")]
    table = Table("Table 4: what a part is worth, time without it over time with it", head, [])
    for system in list(systems)[1:]:
        way, _, part = system.partition(" ")
        row: list[Cell] = [part]
        for group in modes.values():
            found = ratios(group, system, "everything")
            found = found if way == "with" else {m: 1 / v for m, v in found.items()}
            most = extremes(found)[-1]
            row += [geomean(found.values()), f"{most[1]:.2f} {most[0]}" if found else ""]
        table.rows.append(row)
    table.rows += [[part, *["absent"] * (len(head) - 1)] for part in absent]
    table.notes += [f"{part}: {why}" for part, why in absent.items()]
    return table


def by_mode(rows: list[dict], table: int) -> dict[str, list[dict]]:
    out: dict[str, list[dict]] = {}
    for r in rows:
        if r["table"] == table:
            out.setdefault(r["mode"], []).append(r)
    return out


MAKERS = {1: captures, 2: overheads, 3: speeds, 4: parts}
