"""Kernels in Triton's language compiled in processes of their own, several at a time. Used by braze._C alone.

Triton's compiler holds the GIL: only processes of their own keep all CPUs busy. They end when nothing is left to do. This
file is also the program that they run.
"""

import atexit
import base64
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

_IDLE = 5.0  # seconds that a process waits for more to do
_lock = threading.Lock()
_tasks = queue.PriorityQueue()
_tickets = {}
_count = 0
_running = set()


class _Task:
    def __init__(self, source):
        self.source = source
        self.done = threading.Event()
        self.made = None  # what compile_any returns, or a text: why not


def _limit():
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return max(1, os.cpu_count() or 1)


def start(sources, weight):
    """A ticket for the sources' kernels. Those of the greatest weight are compiled first."""
    global _count
    tasks = [_Task(s) for s in sources]
    with _lock:
        _count += 1
        ticket = _count
        _tickets[ticket] = tasks
        for i, t in enumerate(tasks):
            _tasks.put((-weight, ticket, i, t))
        for _ in range(min(_tasks.qsize(), _limit() - len(_running))):
            worker = threading.Thread(target=_work, name="braze-triton", daemon=True)
            _running.add(worker)
            worker.start()
    return ticket


def finish(ticket, seconds):
    """For each source what compile_any returns, a text that says why there is none, or None: not within these seconds."""
    end = time.monotonic() + seconds
    tasks = _tickets.pop(ticket, [])  # a child of fork has none
    for t in tasks:
        t.done.wait(max(0.0, end - time.monotonic()))
    for t in tasks:
        if not t.done.is_set():
            t.source = None  # nobody waits any more
    return [t.made if t.done.is_set() else None for t in tasks]


def _work():
    process = None
    try:
        while True:
            try:
                *_, task = _tasks.get(timeout=_IDLE)
            except queue.Empty:
                with _lock:
                    if not _tasks.empty():
                        continue
                    _running.discard(threading.current_thread())
                    return
            source = task.source
            if source is None:
                continue
            try:
                if process is None or process.poll() is not None:
                    process = _spawn()
                process.stdin.write(json.dumps(source) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError("the process that compiles ended")
                answer = json.loads(line)
                if isinstance(answer, list):
                    answer = (base64.b64decode(answer[0]), *answer[1:])
                task.made = answer
            except Exception as e:
                task.made = f"{type(e).__name__}: {e}"
            task.done.set()
    finally:
        with _lock:
            _running.discard(threading.current_thread())
        if process is not None:
            _end(process)


def _spawn():
    process = subprocess.Popen(
        [sys.executable, str(pathlib.Path(__file__))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    _processes.add(process)
    return process


_processes = set()


def _end(process):
    _processes.discard(process)
    process.stdin.close()
    process.terminate()
    process.wait()


@atexit.register
def _end_all():
    for p in list(_processes):
        p.kill()


def _forget():
    """In a child of fork, whose threads are gone."""
    global _lock, _tasks, _tickets
    _lock, _tasks, _tickets = threading.Lock(), queue.PriorityQueue(), {}
    _running.clear()
    _processes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _serve():
    """Reads sources, one a line, and writes what becomes of them."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a compiler prints is no answer
    # This file's folder would stand before the standard library's.
    sys.path[:] = [p for p in sys.path if p != str(pathlib.Path(__file__).parent)]
    import importlib.util

    spec = importlib.util.spec_from_file_location("_triton", pathlib.Path(__file__).with_name("_triton.py"))
    door = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(door)
    for line in sys.stdin:
        try:
            cubin, *rest = door.compile_any(*json.loads(line))
            answer = [base64.b64encode(cubin).decode(), *rest]
        except Exception as e:
            answer = f"{type(e).__name__}: {e}"[:2000] or "refused"
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
