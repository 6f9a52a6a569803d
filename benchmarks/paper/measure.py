"""Measures what is not in the file of results yet. Each (model, system) is a process of its own, with limits of time and memory."""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.paper import backends, capture
from benchmarks.paper.children import Child

PREPARED_ONCE = 3  # how many times the limit of a capture a first call in tables 2 to 4 may take


class Store:
    """One JSON object a line, appended as measured, so that a run goes on after an interruption."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = [json.loads(line) for line in lines if line.endswith("}")]  # the last one may be cut

    def has(self, **key) -> bool:
        return any(all(row.get(k) == v for k, v in key.items()) for row in self.rows)

    def add(self, row: dict):
        self.rows.append(row)
        with self.path.open("a") as f:
            f.write(json.dumps(row) + "\n")
        print(" ".join(str(row.get(k, "")) for k in ("table", "model", "mode", "system", "status")), file=sys.stderr)


def installed(packages: list[str]) -> bool:
    return all(importlib.util.find_spec(p) for p in packages)


def wanted(systems: Iterable[str], packages: dict[str, list[str]], a: argparse.Namespace) -> list[str]:
    """Those that were asked for and can run here; eager and Braze with everything are what the others are compared with."""
    named = {"eager", "everything", *(a.systems or ())}
    return [s for s in systems if (not a.systems or s in named) and installed(packages.get(s, []))]


def capture_rows(store: Store, models: list[str], a: argparse.Namespace):
    systems = wanted(capture.SYSTEMS, capture.PACKAGES, a)

    def one(task):
        model, system = task
        folder = tempfile.mkdtemp(prefix="braze-paper-")
        worker = Child(system, model, folder, a.threads, a.memory)
        try:
            return {"table": 1, "model": model, "system": system, **worker.ask("capture", limit=a.limit)}
        except RuntimeError as e:
            return {"table": 1, "model": model, "system": system, "status": "fails", "why": str(e)}
        finally:
            worker.close()
            shutil.rmtree(folder, ignore_errors=True)

    tasks = [(m, s) for m in models for s in systems if not store.has(table=1, model=m, system=s)]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for row in concurrent.futures.as_completed([pool.submit(one, t) for t in tasks]):
            store.add(row.result())


def timed_rows(store: Store, table: int, models: list[str], a: argparse.Namespace):
    if table == 2:
        systems, modes = wanted(backends.OVERHEAD, {}, a), ["inference fp32"]
    elif table == 3:
        systems, modes = wanted(backends.SPEED, backends.PACKAGES, a), a.modes
    else:
        systems, modes = wanted(backends.ablation()[0], {}, a), [m for m in a.modes if m.endswith("fp32")]
    tasks = [(mode, m) for mode in modes for m in models if not store.has(table=table, model=m, mode=mode)]
    with tempfile.TemporaryDirectory(prefix="braze-paper-", ignore_cleanup_errors=True) as folder:
        for mode, model in tasks:
            able = [s for s in systems if mode.startswith("inference") or s not in backends.NO_TRAINING]
            rows = timed(able, table, model, mode, folder, a)
            store.add({"table": table, "model": model, "mode": mode, "systems": rows})


def timed(systems: list[str], table: int, model: str, mode: str, folder: str, a: argparse.Namespace) -> dict[str, dict]:
    """All systems beside each other: rounds in turn. Of each round the shortest call, in milliseconds."""
    rows, workers = {}, {}

    def ask(system, *what, **how):
        try:
            return workers[system].ask(*what, **how)
        except RuntimeError as e:
            workers.pop(system).close()
            rows[system] = {"failed": str(e)[:300]}

    try:
        for system in systems:
            workers[system] = Child(system, model, folder, a.threads, a.memory)
            if made := ask(system, "prepare", limit=PREPARED_ONCE * a.limit, table=table, mode=mode):
                rows[system] = {"seconds": made["seconds"], "rounds": []}
        for _ in range(a.rounds):
            for system in list(workers):
                if reply := ask(system, "time", limit=a.limit, seconds=a.seconds, clock=a.clock):
                    rows[system]["rounds"].append(reply["ms"])
    finally:
        for worker in workers.values():
            worker.close()
    return rows
