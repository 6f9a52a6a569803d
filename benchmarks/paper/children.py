"""A process for each (system, model), with limits of time and memory, forked from one that has imported the libraries already."""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
import traceback

from benchmarks.run import caches

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["benchmarks.paper.preloaded"])


class Child:
    """Answers what `ask` asks by the methods of a `benchmarks.paper.job.Job`."""

    def __init__(self, system: str, model: str, folder: str, threads: int, memory: float):
        self.memory = memory  # GiB
        self.log = tempfile.NamedTemporaryFile()
        self.pipe, theirs = _processes.Pipe()
        args = (theirs, self.log.name, caches(folder), threads, system, model)
        self.process = _processes.Process(target=answer, args=args, daemon=False)
        self.process.start()
        theirs.close()

    def ask(self, op: str, limit: float, **more) -> dict:
        """Raises RuntimeError with the child's last words if it died, failed, was too slow or too large."""
        end = time.monotonic() + limit
        try:
            self.pipe.send((op, more))
            while not self.pipe.poll(max(0.0, min(0.05, end - time.monotonic()))):
                if time.monotonic() >= end:
                    self.process.kill()
                    raise RuntimeError(f"no answer within {limit:g} s")
                if resident(self.process.pid) > self.memory:
                    self.process.kill()
                    raise RuntimeError(f"more than {self.memory:g} GiB of memory")
            reply = self.pipe.recv()
        except (EOFError, OSError):
            raise RuntimeError(self.last_words()) from None
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def last_words(self) -> str:
        self.process.join(10)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f"exit status {self.process.exitcode}: {lines[-1] if lines else ''}"

    def close(self):
        self.pipe.close()  # at which it ends, and with it the processes that a compiler started
        self.process.join(5)
        self.process.kill()
        self.process.join()
        self.log.close()


def answer(pipe, log: str, env: dict[str, str], threads: int, system: str, model: str):
    """The child's end."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.environ.update(env)
    import torch

    from benchmarks.paper.job import Job

    if threads:
        torch.set_num_threads(threads)
    job = Job(system, model)
    while True:
        try:
            op, more = pipe.recv()
        except EOFError:
            return
        try:
            reply = getattr(job, op)(**more)
        except Exception as e:
            traceback.print_exc()
            reply = {"error": f"{type(e).__name__}: {e}"[:300]}
        pipe.send(reply)


def resident(pid: int) -> float:
    """GiB of a process; 0 of one that has ended."""
    try:
        with open(f"/proc/{pid}/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize() / 2**30
    except (OSError, IndexError):
        return 0.0
