"""Matrix products of language models' layers on a GPU: eager, the default mode and max-autotune.

    python -m benchmarks.products [--configs]

Weights are rotated, so that they come from memory as in a model. `--configs` also times each kind of tile for the largest
layer, by Triton's own launcher.
"""

import argparse
import math
import multiprocessing
import statistics
import time

import torch
import torch.nn.functional as F

import braze

BF16 = torch.bfloat16
D = 4096  # features


def gelu(x, w, b):
    return F.gelu(F.linear(x, w, b), approximate="tanh")


def silu(x, w, b):
    return F.silu(F.linear(x, w, b))


def residual(x, w, b, r):
    return r + F.linear(x, w, b)


def gated(x, w, v):
    return F.silu(F.linear(x, w)) * F.linear(x, v)


# name: (function, features in, shapes of its tensors besides x given m)
LAYERS = {
    "up_gelu": (gelu, D, lambda m: [(4 * D, D), (4 * D,)]),
    "down_residual": (residual, 4 * D, lambda m: [(D, 4 * D), (D,), (m, D)]),
    "out_residual": (residual, D, lambda m: [(D, D), (D,), (m, D)]),
    "gated": (gated, D, lambda m: [(11008, D), (11008, D)]),
}
ROWS = (1, 16, 128, 1024, 8192)


def rand(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.float32).mul_(0.03).to(BF16)


def sets(m, features, shapes):
    """Arguments of the same shapes in different memory, more than a cache holds."""
    one = lambda: [rand(m, features), *[rand(*s) for s in shapes(m)]]
    first = one()
    size = sum(t.numel() * 2 for t in first)
    return [first] + [one() for _ in range(min(7, max(1, (160 << 20) // size)))]


def milliseconds(functions, args, seconds=0.25):
    """Median of a call of each, replayed in turn from CUDA Graphs of one call for each set of arguments: without the host's time,
    and as warm as the others."""
    replays, kept = [], []
    for f in functions:
        with torch.cuda.stream(torch.cuda.Stream()):
            for a in args * 3:
                f(*a)
        torch.cuda.synchronize()
        replays.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(replays[-1]):
            kept.append([f(*a) for a in args])
    times = [[] for _ in functions]
    end = time.monotonic() + seconds * len(functions)
    while len(times[0]) < 5 or (time.monotonic() < end and len(times[0]) < 200):
        for replay, mine in zip(replays, times):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            replay.replay()
            last.record()
            last.synchronize()
            mine.append(first.elapsed_time(last) / len(args))
    del kept
    return [statistics.median(t) for t in times]


def layers():
    ratios, least = [], math.inf
    print(
        f"{'layer':16} {'m':>5} {'eager':>9} {'default':>9} {'tuned':>9} {'/eager':>7} {'/default':>8}  chosen (search)"
    )
    for name, (f, features, shapes) in LAYERS.items():
        for m in ROWS:
            args = sets(m, features, shapes)
            with torch.no_grad():
                default = braze.compile(f, fullgraph=True, dynamic=False)
                tuned = braze.compile(f, fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs")
                before = len(braze._C._tuned())
                start = time.monotonic()
                tuned(*args[0])
                torch.cuda.synchronize()
                first = time.monotonic() - start
                found = [r for r in braze._C._tuned()[before:] if "product" in r]
                ms = milliseconds((f, default, tuned), args)
            ratios.append(ms[0] / ms[2])
            least = min(least, ms[1] / ms[2])
            chosen = "; ".join(f"{r['chosen']} of {len(r['ways'])}" for r in found)
            print(
                f"{name:16} {m:5} {ms[0]:9.4f} {ms[1]:9.4f} {ms[2]:9.4f} {ms[0] / ms[2]:7.2f} {ms[1] / ms[2]:8.2f}"
                f"  {chosen} ({first:.1f} s)",
                flush=True,
            )
            for r in found:
                print("   ", r["product"], " ".join(f"[{w} {t:.4f}]" for w, t in r["ways"]) or "known")
            del args, default, tuned
    print(f"geometric mean over eager {math.exp(statistics.mean(map(math.log, ratios))):.3f}")
    print(f"least over eager {min(ratios):.3f}, over default {least:.3f}")


def library():
    """What the library takes for the largest layer, and what follows it."""
    x, w, b = rand(8192, D), rand(4 * D, D), rand(4 * D)
    y = x @ w.t()
    for name, f in {
        "product": lambda: x @ w.t(),
        "with bias": lambda: F.linear(x, w, b),
        "with bias and gelu in the library": lambda: torch.ops.aten._addmm_activation(b, x, w.t(), use_gelu=True),
        "gelu alone": lambda: F.gelu(y, approximate="tanh"),
    }.items():
        print(f"8192x{D} @ {D}x{4 * D}, {name}: {milliseconds([lambda: f()], [[]])[0]:.4f} ms", flush=True)


TILES = [
    (128, 256, 64, 8, 3, True, False),
    (128, 256, 64, 8, 4, True, False),
    (256, 128, 64, 8, 3, True, False),
    (128, 128, 64, 4, 3, True, False),
    (128, 256, 64, 4, 3, True, True),
    (256, 128, 64, 4, 3, True, True),
    (128, 256, 64, 8, 3, False, False),
    (256, 128, 64, 8, 3, False, False),
    (128, 128, 64, 4, 3, False, False),
]


def tile(config, answer):
    """In a process of its own, as one that specialises warps may never end."""
    import sys

    import triton

    sys.path.insert(0, "tests/python")
    import product_cases

    from braze import _triton

    arguments = [torch.zeros(s, dtype=BF16) for s in ((8192, D), (4 * D, D), (4 * D,))]
    product_cases.CASES["largest"] = (gelu, arguments, 1, True)
    made, _ = product_cases.kernels("largest", [config], torch.cuda.get_device_properties(0).multi_processor_count)
    (k,) = made["products"][0]["kernels"]
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    kernel = _triton.define(k["text"], k["kernel"])
    args = [rand(*a.shape) for a in arguments]
    memory = [
        args[m[1]] if m[1] is not None else torch.empty(8192, 4 * D, dtype=BF16, device="cuda") for m in made["buffers"]
    ]
    pointers = [memory[b] for b in k["buffers"]]
    error = torch.zeros(1, dtype=torch.int32, device="cuda")

    def run():
        kernel[(k["programs"],)](*pointers, error, num_warps=k["warps"], num_stages=k["stages"])

    run()
    out = memory[made["outputs"][0][0]].view(8192, 4 * D)
    off = float((out[:512].float() - gelu(args[0][:512], *args[1:]).float()).abs().max())
    answer.put(f"{k['label']}: {milliseconds([run], [[]])[0]:.4f} ms, off by {off:.4f}")


def tiles():
    context = multiprocessing.get_context("spawn")
    for config in TILES:
        answer = context.Queue()
        process = context.Process(target=tile, args=(config, answer))
        process.start()
        process.join(30)
        if process.is_alive():
            process.kill()
        print(answer.get(timeout=1) if process.exitcode == 0 else f"{config}: failed or never ended", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--configs", action="store_true")
    options = parser.parse_args()
    library()
    if options.configs:
        tiles()
    layers()
