"""Elementary functions of compiled kernels, in nanoseconds an element, beside those of SLEEF and of eager PyTorch, in one run.

    python -m benchmarks.vector_math [--rounds 60] [--dtype float32] [--json PATH]

SLEEF (Shibata and Petrogalli, IEEE TPDS 2020) is called as a library, a vector of the CPU's widest registers at a time, where its header
is installed (Debian: libsleef-dev) and a C++ compiler is; sigmoid is made of its exp. `u10` promises 1 unit in the last place, `u35` 3.5.
One thread; arguments and results stay in the second level of cache. The time of an element is the difference between two lengths, the
least of each over the rounds, by what they differ in: what a call costs besides is not in it, loads and stores are. ulp: the largest
error over 2 million arguments drawn from the range, against a wider type; not where the result is subnormal.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import torch
from rich.console import Console
from rich.table import Table

import braze

# name: (of one tensor, where its arguments lie)
FUNCTIONS = {
    "exp": (torch.exp, (-20, 20)),
    "log": (torch.log, (1e-6, 1e6)),
    "tanh": (torch.tanh, (-5, 5)),
    "sigmoid": (torch.sigmoid, (-15, 15)),
    "erf": (torch.erf, (-4, 4)),
    "sin": (torch.sin, (-100, 100)),
    "cos": (torch.cos, (-100, 100)),
    "pow": (lambda x: torch.pow(x, 1.75), (1e-3, 1e3)),
}
SHORT, LONG = 4096, 16384  # elements
CALLS = 20

SOURCE = """
#include <immintrin.h>
#include <sleef.h>
#include <cstring>
#if defined(__AVX512F__) && DOUBLE
using T = double; using V = __m512d;
#define S(f, u) Sleef_##f##d8_##u##avx512f
#elif defined(__AVX512F__)
using T = float; using V = __m512;
#define S(f, u) Sleef_##f##f16_##u##avx512f
#elif DOUBLE
using T = double; using V = __m256d;
#define S(f, u) Sleef_##f##d4_##u##avx2
#else
using T = float; using V = __m256;
#define S(f, u) Sleef_##f##f8_##u##avx2
#endif
#define LOOP(name, call) extern "C" void name(const T* x, T* y, long n) { \\
  for (long i = 0; i < n; i += long(sizeof(V) / sizeof(T))) { \\
    V v; std::memcpy(&v, x + i, sizeof v); v = call; std::memcpy(y + i, &v, sizeof v); } }
LOOP(exp_u10, S(exp, u10)(v))
LOOP(log_u10, S(log, u10)(v))
LOOP(log_u35, S(log, u35)(v))
LOOP(tanh_u10, S(tanh, u10)(v))
LOOP(tanh_u35, S(tanh, u35)(v))
LOOP(sigmoid_u10, T(1) / (T(1) + S(exp, u10)(-v)))
LOOP(erf_u10, S(erf, u10)(v))
LOOP(sin_u10, S(sin, u10)(v))
LOOP(sin_u35, S(sin, u35)(v))
LOOP(cos_u10, S(cos, u10)(v))
LOOP(cos_u35, S(cos, u35)(v))
LOOP(pow_u10, S(pow, u10)(v, V{} + T(1.75)))
"""


def sleef(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Its functions as loops over arrays, for this CPU; None: there is no header or compiler."""
    compiler = shutil.which("c++")
    if not compiler:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = pathlib.Path(folder, "loops.cpp"), pathlib.Path(folder, "loops.so")
        source.write_text(SOURCE)
        command = [
            compiler,
            "-O2",
            "-std=c++17",
            "-march=native",
            "-shared",
            "-fPIC",
            f"-DDOUBLE={int(dtype == torch.float64)}",
        ]
        made = subprocess.run([*command, str(source), "-o", str(library), "-lsleef"], capture_output=True, text=True)
        if made.returncode:
            print("without SLEEF:", made.stderr.strip().splitlines()[0])
            return None
        return ctypes.CDLL(str(library))


def caller(function, dtype):
    """One that takes a tensor."""
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    out = {n: torch.empty(n, dtype=dtype) for n in (SHORT, LONG)}

    def call(x):
        y = out.get(x.numel())
        y = torch.empty_like(x) if y is None else y
        function(x.data_ptr(), y.data_ptr(), x.numel())
        return y

    return call


def ulp(got: torch.Tensor, exact: torch.Tensor) -> float:
    unit = torch.finfo(got.dtype).eps * torch.exp2(exact.abs().log2().floor())
    normal = exact.abs() >= torch.finfo(got.dtype).tiny
    return ((got.to(exact.dtype) - exact).abs() / unit)[normal].max().item()


def arguments(n, low, high, dtype):
    if low > 0:  # over orders of magnitude
        low, high = torch.tensor([low, high], dtype=torch.float64).log().tolist()
        return torch.empty(n, dtype=torch.float64).uniform_(low, high).exp().to(dtype)
    return torch.empty(n, dtype=torch.float64).uniform_(low, high).to(dtype)


def least(call, x, best):
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call(x)
    return min(best, (time.perf_counter_ns() - start) / CALLS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    library = sleef(dtype)
    rows = []
    for name, (function, bounds) in FUNCTIONS.items():
        calls = {"Braze": braze.compile(function, dynamic=False), "eager": function}
        for accuracy in ("u10", "u35"):
            if library and hasattr(library, f"{name}_{accuracy}"):
                calls[f"SLEEF {accuracy}"] = caller(getattr(library, f"{name}_{accuracy}"), dtype)
        short, long, many = (arguments(n, *bounds, dtype) for n in (SHORT, LONG, 1 << 21))
        best = {c: {SHORT: float("inf"), LONG: float("inf")} for c in calls}
        for _ in range(args.rounds):
            for c, call in calls.items():
                for x in (short, long):
                    best[c][x.numel()] = least(call, x, best[c][x.numel()])
        exact = function(many.double()) if dtype == torch.float32 else None
        for c, call in calls.items():
            error = ulp(call(many), exact) if exact is not None else None
            rows.append(
                {"function": name, "by": c, "ns": (best[c][LONG] - best[c][SHORT]) / (LONG - SHORT), "ulp": error}
            )
    table = Table(
        "function",
        *(f"{c}: ns, ulp" for c in ("Braze", "SLEEF u10", "SLEEF u35", "eager")),
        title=f"{args.dtype}, {torch.backends.cpu.get_cpu_capability()}",
    )
    for name in FUNCTIONS:
        found = {r["by"]: r for r in rows if r["function"] == name}
        cell = lambda r: "" if r is None else f"{r['ns']:.2f}" + ("" if r["ulp"] is None else f", {r['ulp']:.2f}")
        table.add_row(name, *(cell(found.get(c)) for c in ("Braze", "SLEEF u10", "SLEEF u35", "eager")))
    Console(width=120).print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
