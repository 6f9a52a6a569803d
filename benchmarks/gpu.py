"""Braze on an NVIDIA GPU beside eager and torch.compile: `python -m benchmarks.gpu [kernels] [replays] [models]`.

Times are the median of interleaved runs by CUDA events, with the caches of the GPU as the runs leave them."""

import sys
import time

import torch
import torch.nn.functional as F

import braze


def median(xs):
    return sorted(xs)[len(xs) // 2]


def times(fns, runs=30, inner=1):
    """Milliseconds of each function, interleaved."""
    for f in fns:
        for _ in range(3):
            f()
    torch.cuda.synchronize()
    out = [[] for _ in fns]
    for _ in range(runs):
        for i, f in enumerate(fns):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            for _ in range(inner):
                f()
            b.record()
            b.synchronize()
            out[i].append(a.elapsed_time(b) / inner)
    return [median(o) for o in out]


def kernels():
    n = 1 << 24
    x, y = torch.randn(16384, 1024, device="cuda"), torch.randn(16384, 1024, device="cuda")
    b = torch.randn(1024, device="cuda")
    h, k = x.bfloat16(), y.bfloat16()
    q = torch.randn(8192, 2048, device="cuda")
    s = torch.randn(4096, 4096, device="cuda")
    w = torch.randn(50000, 768, device="cuda")
    i = torch.randint(0, 50000, (32, 512), device="cuda")
    c = torch.randn(32, 64, 96, 96, device="cuda")
    X, H = x.nbytes, h.nbytes
    suite = {
        "copy": (lambda: x.clone(), None, 2 * X),
        "gelu chain": (lambda x, y: F.gelu(x * 2 + y, approximate="tanh") * y, (x, y), 3 * X),
        "8-op chain": (lambda x, y: torch.tanh((x + y) * 0.5).relu() * y - x.abs() + y * y, (x, y), 3 * X),
        "bias gelu": (lambda x, b: F.gelu(x + b), (x, b), 2 * X),
        "bf16 silu mul": (lambda h, k: F.silu(h) * k, (h, k), 3 * H),
        "bf16 cast add": (lambda h, x: h.float() + x, (h, x), H + 2 * X),
        "softmax 1024": (lambda x: torch.softmax(x, -1), (x,), 2 * X),
        "softmax 4096": (lambda s: torch.softmax(s, -1), (s,), 2 * s.nbytes),
        "softmax bf16": (lambda h: torch.softmax(h, -1), (h,), 2 * H),
        "softmax 768x16384": (lambda x: torch.softmax(x.view(1024, 16384), -1), (x,), 2 * X),
        "layer norm 1024": (lambda x, b: F.layer_norm(x, (1024,), b, b), (x, b), 2 * X),
        "rms norm bf16": (lambda h: h * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + 1e-6).bfloat16(), (h,), 2 * H),
        "residual norm": (lambda x, y, b: F.layer_norm(x + y, (1024,), b, b), (x, y, b), 3 * X),
        "row sum": (lambda x: x.sum(-1), (x,), X),
        "column sum": (lambda x: x.sum(0), (x,), X),
        "whole sum": (lambda x: (x * x).sum(), (x,), X),
        "argmax": (lambda x: x.argmax(-1), (x,), X),
        "transpose add": (lambda s: s + s.t(), (s,), 2 * s.nbytes),
        "transpose": (lambda q: q.t().contiguous(), (q,), 2 * q.nbytes),
        "embedding": (lambda w, i: F.embedding(i, w) * 2, (w, i), 2 * i.numel() * 768 * 4),
        "batch norm": (lambda c: (c - c.mean((0, 2, 3), keepdim=True)) * torch.rsqrt(c.var((0, 2, 3), keepdim=True) + 1e-5), (c,), 3 * c.nbytes),
    }
    print(f"{'kernel':20s} {'eager':>9s} {'compile':>9s} {'braze':>9s}   GB/s  of copy  kernels")
    copy = None
    for name, (fn, args, moved) in suite.items():
        if args is None:
            t = times([fn])[0]
            copy = moved / t
            print(f"{name:20s} {t * 1e3:8.1f}us {'':19s} {moved / t / 1e6:6.0f}")
            continue
        ours = braze.compile(fn)
        theirs = torch.compile(fn)
        e, t, o = times([lambda: fn(*args), lambda: theirs(*args), lambda: ours(*args)])
        count = braze.explain(fn, *args).kernel_count
        torch.testing.assert_close(ours(*args), fn(*args), rtol=2e-2 if h is args[0] else 1e-3, atol=1e-2)
        print(f"{name:20s} {e * 1e3:8.1f}us {t * 1e3:8.1f}us {o * 1e3:8.1f}us {moved / o / 1e6:6.0f} {moved / o / copy * 100:6.0f} %  {count}", flush=True)
        torch._dynamo.reset()


def bert():
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(attn_implementation="sdpa")), (torch.randint(0, 30000, (8, 128)),), lambda o: o.last_hidden_state


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False)), (torch.randint(0, 50000, (4, 256)),), lambda o: o.logits


def resnet50():
    import torchvision

    return torchvision.models.resnet50(), (torch.randn(32, 3, 224, 224),), lambda o: o


def mlp():
    layers = [torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024), torch.nn.LayerNorm(1024)]
    return torch.nn.Sequential(*layers, *layers), (torch.randn(512, 1024),), lambda o: o


def small_mlp():
    layers = [torch.nn.Linear(512, 512), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, *layers, *layers), (torch.randn(4, 512),), lambda o: o


def small_bert():
    m, _, read = bert()
    return m, (torch.randint(0, 30000, (1, 64)),), read


def replays():
    """mode="reduce-overhead" at small batches."""
    torch.backends.cuda.matmul.allow_tf32 = True
    for name, make in (("mlp", small_mlp), ("bert", small_bert)):
        torch.manual_seed(0)
        m, args, read = make()
        m, args = m.cuda().eval(), [a.cuda() for a in args]
        with torch.no_grad():
            ours, theirs, plain = braze.compile(m, mode="reduce-overhead"), torch.compile(m, mode="reduce-overhead"), braze.compile(m)
            for _ in range(5):
                got, other = read(ours(*args)), read(theirs(*args))
            torch.testing.assert_close(got, read(m(*args)), rtol=1e-2, atol=1e-2)
            e, t, p, o = times([lambda: m(*args), lambda: theirs(*args), lambda: plain(*args), lambda: ours(*args)], runs=40, inner=3)
        print(f"reduce-overhead {name:6s} eager {e:.3f}  compile {t:.3f} ({e / t:.2f}x)  braze default {p:.3f} ({e / p:.2f}x)  braze {o:.3f} ms ({e / o:.2f}x)", flush=True)
        torch._dynamo.reset()


MODELS = {"mlp": mlp, "bert": bert, "gpt2": gpt2, "resnet50": resnet50}


def models(names):
    torch.backends.cuda.matmul.allow_tf32 = True
    for name in names:
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            m, args, read = MODELS[name]()
            m = m.cuda().eval().to(dtype)
            args = [a.cuda().to(dtype) if a.is_floating_point() else a.cuda() for a in args]
            with torch.no_grad():
                start = time.perf_counter()
                ours = braze.compile(m)
                got = read(ours(*args))
                torch.cuda.synchronize()
                cold = time.perf_counter() - start
                want = read(m(*args))
                start = time.perf_counter()
                theirs = torch.compile(m)
                theirs(*args)
                torch.cuda.synchronize()
                cold_theirs = time.perf_counter() - start
                e, t, o = times([lambda: m(*args), lambda: theirs(*args), lambda: ours(*args)], runs=20, inner=3)
                x = braze.explain(m, *args)
                wide = m.double()
                exact = read(wide(*[a.double() if a.is_floating_point() else a for a in args]))
                err = lambda r: float((r.double() - exact).abs().max() / exact.abs().max())
            print(f"{name:9s} {str(dtype)[6:]:9s} cold {cold:6.2f} s (compile {cold_theirs:6.2f} s)  eager {e:7.3f} compile {t:7.3f} braze {o:7.3f} ms"
                  f"  error {err(got):.1e} (eager {err(want):.1e})  {x.graph_count} graphs {x.graph_break_count} breaks {x.kernel_count} kernels {x.extern_count} externs", flush=True)
            print("    " + ", ".join(f"{k} {v * 1e3:.1f}" for k, v in x.times.items()) + " ms", flush=True)
            torch._dynamo.reset()


if __name__ == "__main__":
    what = sys.argv[1:] or ["kernels", *MODELS]
    if "kernels" in what:
        kernels()
    if "replays" in what:
        replays()
    models([w for w in what if w in MODELS])
