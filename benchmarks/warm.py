"""A second process beside the first one: milliseconds until a model of 12 layers is ready, with torch.compile beside, in one run.

    python -m benchmarks.warm [--compilers braze,inductor] [--cases bert,gpt2,bert_train,gpt2_train] [--rounds 3]

Each process is fresh; the first finds empty caches, those after it what it left. "ready" is compile(model) and the first call (of a
training step: forward and backward) without the time of a call that follows: capture, guards, graph stages, loading of code. What is
run is narrow, because none of that depends on a model's width, and the run itself would drown it. Wall time, and CPU time of the
calling thread, which a busy machine changes less; of the second processes the median. Importing counts by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

CASES = ("bert", "gpt2", "bert_train", "gpt2_train")
COMPILERS = ("braze", "inductor")


def model(case: str):
    from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

    if case.startswith("bert"):
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        sizes = {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 12}
        return BertModel(BertConfig(num_hidden_layers=12, vocab_size=100, **sizes, **off))
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2Model(
        GPT2Config(n_layer=12, n_embd=48, n_head=12, vocab_size=100, bos_token_id=0, eos_token_id=0, **off)
    )


def resident_mib() -> float:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def child(compiler: str, case: str) -> dict:
    import torch

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    m = model(case).train(case.endswith("_train"))
    ids = torch.randint(0, 100, (2, 8))

    def step(fn):
        if case.endswith("_train"):
            m.zero_grad()
            fn(ids).last_hidden_state.square().sum().backward()
            return [p.grad.clone() for p in m.parameters() if p.grad is not None]
        with torch.no_grad():
            return [fn(ids).last_hidden_state]

    def timed(run):
        wall, cpu = time.perf_counter(), time.thread_time()
        run()
        return 1e3 * (time.perf_counter() - wall), 1e3 * (time.thread_time() - cpu)

    want = step(m)
    before, at = resident_mib(), time.perf_counter()
    if compiler == "braze":
        from braze import compile
    else:
        import torch._dynamo
        import torch._inductor.compile_fx  # noqa: F401

        compile = torch.compile
    imported, memory = time.perf_counter(), resident_mib() - before
    fn = None

    def start():
        nonlocal fn
        fn = compile(m)
        step(fn)

    first = timed(start)
    steady = [timed(lambda: step(fn)) for _ in range(5)]
    error = max((a - b).abs().max().item() for a, b in zip(step(fn), want))
    wall, cpu = (first[i] - min(s[i] for s in steady) for i in (0, 1))
    return {"import": 1e3 * (imported - at), "mib": memory, "wall": wall, "cpu": cpu, "error": error}


def run(compiler: str, case: str, folder: str) -> dict:
    from benchmarks.run import caches

    os.makedirs(folder, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.warm", "--child", compiler, case]
    done = subprocess.run(command, env=os.environ | caches(folder), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compilers", default=",".join(COMPILERS))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=3, help="second processes of each compiler and case, in turn")
    parser.add_argument("--child", nargs=2, metavar=("COMPILER", "CASE"), help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.child:
        print(json.dumps(child(*a.child)))
        return
    compilers = a.compilers.split(",")
    print("| case | compiler | first process, ms | second, ms | second, CPU ms | import, ms | import, MiB | error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in a.cases.split(","):
        with tempfile.TemporaryDirectory(prefix="braze-warm-") as folder:
            first = {c: run(c, case, os.path.join(folder, c)) for c in compilers}
            second = {c: [] for c in compilers}
            for _ in range(a.rounds):
                for c in compilers:
                    second[c].append(run(c, case, os.path.join(folder, c)))
            for c in compilers:
                middle = {k: statistics.median(r[k] for r in second[c]) for k in second[c][0]}
                cells = [case, c, f"{first[c]['wall']:.0f}"]
                cells += [f"{middle[k]:.3g}" for k in ("wall", "cpu", "import", "mib", "error")]
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
