"""Threads that compile, call, forget, fork and end at once: every result is eager's, and nothing stands still.

python tests/fuzz/threads.py --seconds 60 --seed 1 --threads 8
"""

import argparse
import faulthandler
import gc
import os
import random
import signal
import sys
import threading
import time
import traceback

import torch

import braze


class Key:
    """A key of dicts whose hash and equality run Python code, and let other threads run meanwhile."""

    def __init__(self, n):
        self.n = n

    def __hash__(self):
        if random.random() < 0.2:
            time.sleep(0)
        return hash(self.n)

    def __eq__(self, other):
        if random.random() < 0.2:
            time.sleep(0)
        return isinstance(other, Key) and self.n == other.n


class Garbage:
    """Its end runs Python code, which may come at any allocation."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        time.sleep(0)


MODEL = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
TABLE = {Key(i): float(i) for i in range(6)}


def model(x, n, text):
    return MODEL(x) * n


def keys(x, n, text):
    return x * TABLE[Key(n % 6)] + len(text)


def texts(x, n, text):
    return x + len(text) if text.startswith("a") else x - len(text)


def breaks(x, n, text):
    y = torch.relu(x) * n
    braze.graph_break()
    z = y.sum(0)
    braze.graph_break()
    return z + len(text)


def branches(x, n, text):
    return x * n if n % 2 else x.sin() if n > 4 else x + 1.5


def raises(x, n, text):
    try:
        return x.view(-1, 1000003)
    except RuntimeError:
        return x * 2


class Numbers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 3


def function(x, n, text):
    return Numbers.apply(x).cos() * n


FUNCTIONS = (model, keys, texts, breaks, branches, raises, function)


class Stress:
    def __init__(self, seed, fork):
        self.end = False
        self.seed, self.fork = seed, fork
        self.errors, self.done, self.forks = [], [], 0
        self.compiled = [braze.compile(f) for f in FUNCTIONS]

    def call(self, rng, tensors):
        which = rng.randrange(len(FUNCTIONS))
        args = rng.choice(tensors), rng.randrange(1, 9), rng.choice(("a", "bc", "abc", "d" * rng.randrange(4, 40)))
        training = rng.random() < 0.3
        with torch.set_grad_enabled(training):
            if rng.random() < 0.1:
                self.compiled[which] = braze.compile(FUNCTIONS[which])
            got, want = self.compiled[which](*args), FUNCTIONS[which](*args)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        if training and got.requires_grad:
            a, b = (
                torch.autograd.grad(got.sum(), MODEL[0].weight, allow_unused=True),
                torch.autograd.grad(want.sum(), MODEL[0].weight, allow_unused=True),
            )
            if a[0] is not None:
                torch.testing.assert_close(a[0], b[0], rtol=1e-4, atol=1e-4)

    def work(self, i):
        rng = random.Random(self.seed * 1000 + i)
        tensors = [torch.randn(n, 16) for n in (2, 3, 4, 5, 7, 64)]
        try:
            while not self.end:
                self.call(rng, tensors)
                self.done[i] += 1
                r = rng.random()
                if r < 0.02:
                    braze.reset()
                elif r < 0.04:
                    Garbage()
                elif r < 0.05:
                    gc.collect()
                elif r < 0.055 and self.fork:
                    self.child(rng, tensors)
        except BaseException:
            self.errors.append(traceback.format_exc())
            self.end = True

    def child(self, rng, tensors):
        """What a fork finds is whole: the child compiles and calls, on one thread, as eager PyTorch's can."""
        self.forks += 1
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                faulthandler.dump_traceback_later(20, exit=True)
                for _ in range(4):
                    self.call(rng, tensors)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        if status:
            raise RuntimeError(f"a forked child ended with {status}")

    def run(self, threads, seconds):
        self.done = [0] * threads
        all_threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(threads)]
        [t.start() for t in all_threads]
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.end:
            before = list(self.done)
            time.sleep(min(10, seconds))
            if not self.end and self.done == before:
                self.errors.append("all threads stand still")
                faulthandler.dump_traceback(all_threads=True)
                os._exit(3)
        self.end = True
        for t in all_threads:
            t.join(30)
            if t.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                print("a thread stands still", flush=True)
                os._exit(3)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--threads", type=int, default=8)
    p.add_argument("--fork", action=argparse.BooleanOptionalAction, default=True)
    a = p.parse_args()
    faulthandler.register(signal.SIGUSR1)
    sys.setswitchinterval(1e-5)
    gc.set_threshold(50)
    torch.set_num_threads(1)  # a forked child has none of the threads that computed for its parent
    stress = Stress(a.seed, a.fork)
    stress.run(a.threads, a.seconds)
    print(f"{sum(stress.done)} calls, {stress.forks} forks, {len(stress.errors)} errors")
    for e in stress.errors[:3]:
        print(e)
    return bool(stress.errors)


if __name__ == "__main__":
    sys.exit(main())
