"""The models: `build(name)` gives a `Program`, a case of benchmarks.suites with more inputs.

Names are those of benchmarks.suites ("bert"), "plain/NAME", "transformers/NAME" and "timm/NAME".
"""

from __future__ import annotations

import dataclasses

import torch

from benchmarks import suites
from benchmarks.paper import hub, plain


@dataclasses.dataclass
class Program(suites.Case):
    others: list[tuple] = dataclasses.field(default_factory=list)  # of the same shapes, other values
    resized: tuple | None = None  # of another batch size


def tensors(out) -> list[torch.Tensor]:
    """Those of a result, in order; numbers as tensors, so that they are compared too."""
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, (bool, int, float)):
        return [torch.tensor(out)]
    if isinstance(out, dict):
        out = out.values()
    return [t for part in out or () for t in tensors(part)]


def floats(out) -> list[torch.Tensor]:
    return [t for t in tensors(out) if t.is_floating_point()]


def build(name: str, small: bool = False) -> Program:
    """With fixed weights and inputs. `small`: of the size that is timed instead of that which is captured."""
    torch.manual_seed(0)
    group, _, kind = name.rpartition("/")
    if not group:
        case = suites.build(name)
        return Program(case.fn, case.args, case.read)
    if group == "plain":
        fn, inputs = plain.PLAIN[kind](256 if small else 32)
    else:
        fn, inputs = hub.MAKERS[name](kind, small)
    batch = 4 if small else 2
    return Program(
        fn.eval(), inputs(batch, 0), floats, None, [inputs(batch, 1), inputs(batch, 3)], inputs(batch + 1, 2)
    )


ALL = [*(f"plain/{name}" for name in plain.PLAIN), *hub.MAKERS]
TIMED = [
    *(f"plain/{name}" for name in "mlp residual_net u_net attention encoder recommender graph_net mixer".split()),
    *(f"transformers/{name}" for name in "bert gpt2 llama t5 vit resnet".split()),
    *(
        f"timm/{name}"
        for name in "convnext_atto efficientnet_b0 mobilenetv3_small_050 resnet18 vit_tiny_patch16_224".split()
    ),
]
QUICK = ["plain/mlp", "plain/branch", "plain/attention", "transformers/bert", "transformers/gpt2"]
QUICK_TIMED = ["plain/mlp", "plain/attention", "transformers/bert"]
