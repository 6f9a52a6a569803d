"""Braze on an NVIDIA GPU beside eager, torch.compile and JAX: `python -m benchmarks.gpu --help`; whole programs in all modes, with memory and
rates: `python -m benchmarks.gpu columns --help`.

Times are the median of interleaved runs by CUDA events (beside JAX: by the host's clock, each call waited for), with the caches
of the GPU as the runs leave them. Cold calls are first calls in fresh processes with empty caches; importing the compiler counts."""

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

import braze
from benchmarks import gpu_columns
from benchmarks.gpu_cases import MODELS, REPLAYS, TRAINING, encoder, jax_encoder, on_gpu, stepper, without_dropout


def median(xs):
    return sorted(xs)[len(xs) // 2]


def times(fns, runs=30, inner=1, queued=False):
    """Milliseconds of each function, interleaved. Queued: the device sleeps first, until the host has launched everything, so
    that its time alone is measured."""
    for f in fns:
        for _ in range(3):
            f()
    torch.cuda.synchronize()
    out = [[] for _ in fns]
    for _ in range(runs):
        for i, f in enumerate(fns):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if queued:
                torch.cuda._sleep(400_000)  # cycles: about 0.2 ms
            a.record()
            for _ in range(inner):
                f()
            b.record()
            b.synchronize()
            out[i].append(a.elapsed_time(b) / inner)
    return [median(o) for o in out]


def kernel_suite():
    """Memory-bound functions of tensors of 64 MiB and more: name -> function, arguments, bytes that it has to move. The first one is the copy that the others are compared with."""
    x, y = torch.randn(16384, 1024, device="cuda"), torch.randn(16384, 1024, device="cuda")
    b = torch.randn(1024, device="cuda")
    h, k = (torch.randn(32768, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    v = torch.randn(32768, 1024, device="cuda")
    q = torch.randn(8192, 2048, device="cuda")
    s = torch.randn(4096, 4096, device="cuda")
    w = torch.randn(50000, 768, device="cuda")
    i = torch.randint(0, 50000, (32, 512), device="cuda")
    c = torch.randn(32, 64, 96, 96, device="cuda")
    X, H = x.nbytes, h.nbytes
    return {
        "copy": (lambda: x.clone(), None, 2 * X),
        "gelu chain": (lambda x, y: F.gelu(x * 2 + y, approximate="tanh") * y, (x, y), 3 * X),
        "8-op chain": (lambda x, y: torch.tanh((x + y) * 0.5).relu() * y - x.abs() + y * y, (x, y), 3 * X),
        "bias gelu": (lambda x, b: F.gelu(x + b), (x, b), 2 * X),
        "bf16 silu mul": (lambda h, k: F.silu(h) * k, (h, k), 3 * H),
        "bf16 cast add": (lambda h, v: h.float() + v, (h, v), 5 * H),
        "softmax 1024": (lambda x: torch.softmax(x, -1), (x,), 2 * X),
        "softmax 4096": (lambda s: torch.softmax(s, -1), (s,), 2 * s.nbytes),
        "softmax bf16": (lambda h: torch.softmax(h, -1), (h,), 2 * H),
        "softmax 768x16384": (lambda x: torch.softmax(x.view(1024, 16384), -1), (x,), 2 * X),
        "layer norm 1024": (lambda x, b: F.layer_norm(x, (1024,), b, b), (x, b), 2 * X),
        "rms norm bf16": (
            lambda h: h * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + 1e-6).bfloat16(),
            (h,),
            2 * H,
        ),
        "residual norm": (lambda x, y, b: F.layer_norm(x + y, (1024,), b, b), (x, y, b), 3 * X),
        "row sum": (lambda x: x.sum(-1), (x,), X),
        "column sum": (lambda x: x.sum(0), (x,), X),
        "whole sum": (
            lambda v: (v * v).sum(),
            (v,),
            2 * X,
        ),  # as much as the copy moves: its second step takes as long at any size
        "whole sum 64 MiB": (lambda x: (x * x).sum(), (x,), X),
        "argmax": (lambda x: x.argmax(-1), (x,), X),
        "transpose add": (lambda s: s + s.t(), (s,), 2 * s.nbytes),
        "transpose": (lambda q: q.t().contiguous(), (q,), 2 * q.nbytes),
        "embedding": (lambda w, i: F.embedding(i, w) * 2, (w, i), 2 * i.numel() * 768 * 4),
        "batch norm": (
            lambda c: (c - c.mean((0, 2, 3), keepdim=True)) * torch.rsqrt(c.var((0, 2, 3), keepdim=True) + 1e-5),
            (c,),
            3 * c.nbytes,
        ),
    }


def kernels(others):
    suite = kernel_suite()
    print(f"{'kernel':20s} {'eager':>9s} {'compile':>9s} {'braze':>9s}   GB/s  of copy  kernels")
    copy = None
    for name, (fn, args, moved) in suite.items():
        if args is None:
            t = times([fn], queued=True)[0]
            copy = moved / t
            print(f"{name:20s} {t * 1e3:8.1f}us {'':19s} {moved / t / 1e6:6.0f}")
            continue
        ours = braze.compile(fn)
        theirs = torch.compile(fn) if others else fn
        e, t, o = times([lambda: fn(*args), lambda: theirs(*args), lambda: ours(*args)], queued=True)
        count = braze.explain(fn, *args).kernel_count
        torch.testing.assert_close(
            ours(*args), fn(*args), rtol=2e-2 if args[0].dtype == torch.bfloat16 else 1e-3, atol=1e-2
        )
        print(
            f"{name:20s} {e * 1e3:8.1f}us {t * 1e3:8.1f}us {o * 1e3:8.1f}us {moved / o / 1e6:6.0f} {moved / o / copy * 100:6.0f} %  {count}",
            flush=True,
        )
        torch.compiler.reset()


def replays(others):
    """mode="reduce-overhead" at small batches."""
    for name, make in REPLAYS.items():
        m, args, read = on_gpu(make)
        with torch.no_grad():
            ours, plain = braze.compile(m, mode="reduce-overhead"), braze.compile(m)
            theirs = torch.compile(m, mode="reduce-overhead") if others else m
            for _ in range(5):
                got = read(ours(*args))
                theirs(*args)
            torch.testing.assert_close(got, read(m(*args)), rtol=1e-2, atol=1e-2)
            e, t, p, o = times(
                [lambda: m(*args), lambda: theirs(*args), lambda: plain(*args), lambda: ours(*args)], runs=40, inner=3
            )
        print(
            f"reduce-overhead {name:10s} eager {e:.3f}  compile {t:.3f} ({e / t:.2f}x)  braze default {p:.3f} ({e / p:.2f}x)  braze {o:.3f} ms ({e / o:.2f}x)",
            flush=True,
        )
        torch.compiler.reset()


def worst(got, exact):
    """Largest difference, relative to the largest value of all (some gradients are zero but for rounding)."""
    scale = max(float(x.abs().max()) for x in exact)
    return max(float((g.double() - x).abs().max()) for g, x in zip(got, exact, strict=True)) / scale


def models(names, others):
    for name in names:
        for dtype in (torch.float32, torch.bfloat16):
            m, args, read = on_gpu(MODELS[name], dtype)
            with torch.no_grad():
                ours, replayed = braze.compile(m), braze.compile(m, mode="reduce-overhead")
                theirs = torch.compile(m) if others else m
                got, want = read(ours(*args)), read(m(*args))
                theirs(*args)
                for _ in range(4):
                    again = read(replayed(*args))
                e, t, o, r = times(
                    [lambda: m(*args), lambda: theirs(*args), lambda: ours(*args), lambda: replayed(*args)],
                    runs=20,
                    inner=3,
                )
                x = braze.explain(m, *args)
                wide = m.double()
                exact = read(wide(*[a.double() if a.is_floating_point() else a for a in args]))
                error, error_replayed, error_eager = (worst([v], [exact]) for v in (got, again, want))
            print(
                f"{name:12s} {str(dtype)[6:]:9s} eager {e:7.3f} compile {t:7.3f} braze {o:7.3f} reduce-overhead {r:7.3f} ms"
                f"  error {error:.1e}, {error_replayed:.1e} (eager {error_eager:.1e})"
                f"  {x.graph_count} graphs {x.graph_break_count} breaks {x.kernel_count} kernels {x.extern_count} externs",
                flush=True,
            )
            torch.compiler.reset()


def training(names, others):
    for name in names:
        m, args, read = on_gpu(MODELS[name])
        without_dropout(m)
        step = lambda fn, m=m: stepper(m, fn, args, read)
        eager, ours, replayed = step(m), step(braze.compile(m)), step(braze.compile(m, mode="reduce-overhead"))
        theirs = step(torch.compile(m)) if others else eager
        state = copy.deepcopy(m.state_dict())  # batch norm's statistics move
        results = []
        for f, calls in ((eager, 1), (ours, 1), (replayed, 5)):
            for _ in range(calls):
                m.load_state_dict(state)
                grads = f()
            results.append([g.clone() for g in grads])
        wide = copy.deepcopy(m)
        wide.load_state_dict(state)
        wide.double()
        exact = stepper(wide, wide, [a.double() if a.is_floating_point() else a for a in args], read)()
        errors = [worst(r, exact) for r in results]
        del wide, exact, results, grads
        times_ms, peaks = times([eager, theirs, ours, replayed], runs=15, inner=2), []
        for f in (eager, ours, replayed):
            torch.cuda.reset_peak_memory_stats()
            f()
            peaks.append(torch.cuda.max_memory_allocated() >> 20)
        e, t, o, r = times_ms
        x = braze.explain(m, *args)
        print(
            f"training {name:9s} eager {e:7.3f} compile {t:7.3f} braze {o:7.3f} reduce-overhead {r:7.3f} ms"
            f"  error {errors[1]:.1e}, {errors[2]:.1e} (eager {errors[0]:.1e})  peak {peaks} MiB  {x.graph_count} graphs {x.graph_break_count} breaks",
            flush=True,
        )
        torch.compiler.reset()


def clock(fn, runs=30):
    for _ in range(5):
        fn()
    out = []
    for _ in range(runs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        fn()
        torch.cuda.synchronize()
        out.append((time.perf_counter() - start) * 1e3)
    return median(out)


def beside_jax(others):
    """A 12-layer encoder, batch 8, length 128, width 768: inference and gradients of the parameters."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    m, args, read = on_gpu(encoder)
    jax_run, jax_grad = jax_encoder(m, args[0])
    fns = {"eager": m, "braze": braze.compile(m), "braze reduce-overhead": braze.compile(m, mode="reduce-overhead")}
    if others:
        fns["compile"] = torch.compile(m)

    def gradients(fn):
        def step():
            for p in m.parameters():
                p.grad = None
            fn(*args).sum().backward()

        return step

    with torch.no_grad():
        print(
            "encoder, inference:",
            ", ".join(f"{k} {clock(lambda f=f: f(*args)):.2f}" for k, f in fns.items()),
            f"jax {clock(jax_run):.2f} ms",
            flush=True,
        )
    print(
        "encoder, gradients:",
        ", ".join(f"{k} {clock(gradients(f)):.2f}" for k, f in fns.items()),
        f"jax {clock(jax_grad):.2f} ms",
        flush=True,
    )
    torch.compiler.reset()


COLD = """
import json, sys, time, torch
from benchmarks.gpu_cases import MODELS, on_gpu, stepper, without_dropout
torch.backends.cuda.matmul.allow_tf32 = True
name, compiler, train = sys.argv[1], sys.argv[2], sys.argv[3] == "train"
m, args, read = on_gpu(MODELS[name])
if train: without_dropout(m)
def once(fn):
    if train:
        stepper(m, fn, args, read)()
    else:
        with torch.no_grad(): read(fn(*args))
    torch.cuda.synchronize()
once(m)
start = time.perf_counter()
if compiler == "braze":
    import braze
    fn = braze.compile(m)
else:
    fn = torch.compile(m)
once(fn)
cold = time.perf_counter() - start
start = time.perf_counter()
once(fn)
print(json.dumps([cold, time.perf_counter() - start]))
"""


def cold(names, others):
    """First calls in fresh processes: with empty caches, and again with those that the first one left."""
    for name in names:
        model, _, train = name.partition("_train")
        mode = "train" if name.endswith("_train") else "infer"
        for compiler in ("braze", "compile") if others else ("braze",):
            with tempfile.TemporaryDirectory() as folder:
                env = {
                    **os.environ,
                    "BRAZE_CACHE_DIR": folder + "/b",
                    "TORCHINDUCTOR_CACHE_DIR": folder + "/t",
                    "TRITON_CACHE_DIR": folder + "/r",
                }
                got = []
                for _ in range(2):
                    p = subprocess.run(
                        [sys.executable, "-c", COLD, model, compiler, mode], env=env, capture_output=True, text=True
                    )
                    got.append(json.loads(p.stdout.splitlines()[-1])[0] if p.returncode == 0 else p.stderr[-300:])
            print(f"cold {name:12s} {compiler:8s} first process {got[0]} s, second {got[1]} s", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["columns"]:
        sys.exit(gpu_columns.main(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what",
        nargs="*",
        help=f"of kernels, replays, training, encoder, cold, models, {', '.join(MODELS)}, train:MODEL, cold:MODEL; default: all",
    )
    parser.add_argument("--alone", action="store_true", help="without torch.compile (its columns show eager)")
    parser.add_argument("--fp32", action="store_true", help="without TF32")
    args = parser.parse_args()
    what, others = args.what or ["kernels", "replays", "models", "training", "encoder", "cold"], not args.alone
    torch.backends.cuda.matmul.allow_tf32 = not args.fp32
    if "kernels" in what:
        kernels(others)
    if "replays" in what:
        replays(others)
    models(list(MODELS) if "models" in what else [w for w in what if w in MODELS], others)
    training(TRAINING if "training" in what else [w[6:] for w in what if w.startswith("train:")], others)
    if "encoder" in what:
        beside_jax(others)
    cold(
        ["chain", "bert", "gpt2", "resnet50", "bert_train"]
        if "cold" in what
        else [w[5:] for w in what if w.startswith("cold:")],
        others,
    )
