"""What programs are run with that are made at random: a backend that counts, how a run ended, the search for those that differ."""

import argparse
import re
import time
import warnings

import torch
from shrinking import shrink


class Counter:
    """Runs graphs unchanged and counts them."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, inputs):
        self.graphs += 1
        return gm.forward


def chain(e, name):
    """Class, words and lines in the program of an exception and of those that it came from."""
    out = []
    while e is not None and len(out) < 8:
        lines, tb = [], e.__traceback__
        while tb:
            if tb.tb_frame.f_code.co_filename == name:
                lines.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        if isinstance(e, UnboundLocalError):  # CPython 3.11 itself names another line once it has specialised the code
            lines = [name for name, _ in lines]
        out.append(
            (
                type(e).__name__,
                re.sub(r"0x[0-9a-f]+", "0x", str(e)),
                lines,
                e.__suppress_context__,
                e.__cause__ is not None,
                getattr(e, "__notes__", None),
            )
        )
        e = e.__cause__ or e.__context__
    return out


def outcome(f, arguments, name):
    try:
        return "returned", f(*arguments)
    except RecursionError:
        return "recursion", None
    except Exception as e:
        return "raised", chain(e, name)


def search(check, first, count, stop_after, seconds=1e9):
    """Prints what `check(seed)` says of the seeds from `first` on, until so many failed or the time is over. How many did, and the last seed."""
    failed, end = 0, time.time() + seconds
    for seed in range(first, first + count):
        if text := check(seed):
            failed += 1
            print(text, flush=True)
        if failed >= stop_after or time.time() > end:
            break
    return failed, seed


def compare(doc, write, failure, seconds):
    """The command line of a fuzzer: `write(seed)` makes a program or None, `failure(program)` says in which way it differs from eager PyTorch,
    or None; one that differs is made smaller for so many seconds. The process's exit status."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--stop-after", type=int, default=20, help="failures to show")
    parser.add_argument("--device", help="where tensors are made: cuda (default: the CPU)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_default_device(options.device)

    def check(seed):
        with torch.device("cpu"):
            program = write(seed)
        why = program and failure(program)
        if not why:
            return None
        if failure(program) is None:
            return f"seed {seed}, not twice: {why}\n{program.source()}"
        small, reason = shrink(program, why, lambda p: p.smaller(), failure, seconds)
        return f"seed {seed}: {reason}\n{small.source()}"

    failed, seed = search(check, options.first, options.count, options.stop_after, options.seconds)
    print(f"{failed} of {seed + 1 - options.first} programs differ")
    return 1 if failed else 0
