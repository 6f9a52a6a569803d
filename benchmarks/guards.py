"""Times guards: what a compiled call costs besides its work. torch.compile and Braze in turns, each in a process of its own.

The backend computes once and then hands out the same output: what is left of a call is its arguments, guards and glue.

  guards   guards of the first graph (Braze: all of them; torch.compile does not tell)
  watched  words of the table that stands for what hangs off objects that did not change
  steps    values and guards that every check looks at besides
  check    nanoseconds of one check of the guards
  call     microseconds of a call

    python -m benchmarks.guards --cases bert12,adamw --rounds 8
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time

CASES = ("one_line", "bert12", "blocks48", "decoder", "static_cache", "adamw")


def constant_backend(gm, example_inputs):
    run, kept = getattr(gm, "forward", gm), []

    def graph(*args):
        if not kept:
            kept.append(run(*args))
        return kept[0]

    return graph


def build(name: str):
    """A callable and its arguments."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def attend(self, q, k, v, position):
            return F.scaled_dot_product_attention(q, k, v)

        def forward(self, x, position=None):
            b, n, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            x = x + self.proj(self.attend(q, k, v, position).transpose(1, 2).reshape(b, n, c))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class CachedBlock(Block):
        """Keys and values of all positions so far stand in buffers, which each call writes to."""

        def __init__(self, width, heads, length=32):
            super().__init__(width, heads)
            for cache in ("keys", "values"):
                self.register_buffer(cache, torch.zeros(1, heads, length, width // heads))

        def attend(self, q, k, v, position):
            self.keys.index_copy_(2, position, k)
            self.values.index_copy_(2, position, v)
            seen = torch.arange(self.keys.shape[2]) <= position[:, None]
            return F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)

    class Stack(nn.Module):
        def __init__(self, kind, blocks, width=16, heads=2):
            super().__init__()
            self.blocks = nn.ModuleList(kind(width, heads) for _ in range(blocks))

        def forward(self, x, position=None):
            for block in self.blocks:
                x = block(x, position)
            return x

    torch.manual_seed(0)
    if name == "one_line":
        return lambda t: t + 1, (torch.randn(4),)
    if name == "blocks48":
        return Stack(Block, 48).eval(), (torch.randn(1, 4, 16),)
    if name == "decoder":
        return Stack(CachedBlock, 16).eval(), (torch.randn(1, 1, 16), torch.tensor([3]))
    if name == "static_cache":  # that the caller gives
        from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

        config = LlamaConfig(
            hidden_size=16,
            num_hidden_layers=16,
            num_attention_heads=2,
            intermediate_size=64,
            vocab_size=64,
            num_key_value_heads=1,
        )
        llama = LlamaForCausalLM(config).eval()
        cache = StaticCache(config=config, max_cache_len=32)
        return lambda ids: llama(input_ids=ids, past_key_values=cache), (torch.tensor([[3]]),)
    if name == "bert12":
        from transformers import BertConfig, BertModel

        config = BertConfig(
            hidden_size=16, num_hidden_layers=12, num_attention_heads=2, intermediate_size=64, vocab_size=64
        )
        return BertModel(config).eval(), (torch.randint(0, 64, (1, 4)),)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(36)))
    model(torch.randn(2, 8)).sum().backward()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()  # makes the state
    return optimizer.step, ()


def serve(who: str):
    """In the child: one JSON line per request, of a case to be made ready or to be timed."""
    import torch

    torch.set_grad_enabled(False)
    ready = {}

    def prepare(name):
        with torch.enable_grad():
            fn, args = build(name)
        out = {}
        if who == "braze":
            import braze

            compiled = braze.compile(fn, backend=constant_backend)
            found = braze.explain(fn, *args)
            out = {"graphs": found.graph_count, **(found.checks[0] if found.checks else {})}
        else:
            compiled = torch.compile(fn, backend=constant_backend)
        for _ in range(3):
            compiled(*args)
        ready[name] = compiled, args
        return out

    def timed(name, seconds):
        f, args = ready[name]
        best, count, took = float("inf"), 20, 0.0
        gc.collect()
        gc.disable()
        end = time.perf_counter() + seconds
        while took < end:
            took = time.perf_counter()
            for _ in range(count):
                f(*args)
            best = min(best, (time.perf_counter() - took) / count)
        gc.enable()
        return {"us": best * 1e6}

    for line in sys.stdin:
        request = json.loads(line)
        reply = prepare(request["case"]) if request["op"] == "prepare" else timed(request["case"], request["seconds"])
        print(json.dumps(reply), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cases", default=",".join(CASES))
    p.add_argument("--compilers", default="torch,braze")
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--seconds", type=float, default=0.1, help="per case, round and compiler")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.serve:
        return serve(a.serve)
    workers = {
        c: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.guards", "--serve", c],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for c in a.compilers.split(",")
    }

    def ask(compiler, **request):
        workers[compiler].stdin.write(json.dumps(request) + "\n")
        workers[compiler].stdin.flush()
        return json.loads(workers[compiler].stdout.readline())

    rows = {(case, c): ask(c, op="prepare", case=case) for case in a.cases.split(",") for c in workers}
    for _ in range(a.rounds):
        for (case, c), row in rows.items():
            row["us"] = min(row.get("us", float("inf")), ask(c, op="time", case=case, seconds=a.seconds)["us"])
    print(
        f"{'case':12} {'guards':>7} {'watched':>8} {'steps':>6} {'check ns':>9} {'call us':>8} {'torch.compile us':>17}"
    )
    for case in a.cases.split(","):
        ours, theirs = rows.get((case, "braze"), {}), rows.get((case, "torch"), {})
        print(
            f"{case:12} {ours.get('guards', 0):7} {ours.get('watched', 0):8} {ours.get('steps', 0):6} {ours.get('seconds', 0) * 1e9:9.0f} "
            f"{ours.get('us', 0):8.2f} {theirs.get('us', 0):17.2f}"
        )
    for w in workers.values():
        w.stdin.close()
        w.wait()


if __name__ == "__main__":
    main()
