"""Tables 2 to 4: the systems that run a case. Each function returns what is called like the case's module.

Table 2 runs captured graphs as they are, table 3 compiled ones, table 4 compiles with parts of Braze switched off.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import torch

from benchmarks.paper.zoo import tensors
from benchmarks.suites import Case

System = Callable[[Case], Callable]


def eager(case: Case):
    return case.fn


def braze(case: Case, **how):
    import braze

    return braze.compile(case.fn, **how)


def torch_compile(case: Case, **how):
    return torch.compile(case.fn, **how)


def lazy_tensors(case: Case):
    import torch._lazy
    import torch._lazy.ts_backend

    torch._lazy.ts_backend.init()
    fn = copy.deepcopy(case.fn).to("lazy")
    there = {}  # inputs are moved once, as a program would that is all lazy

    def run(*args):
        moved = [there.setdefault(id(a), a.to("lazy")) for a in args]
        out = fn(*moved)
        torch._lazy.mark_step(wait=True)
        return out

    return run


def torchscript(case: Case):
    if case.targets is not None:
        return torch.jit.trace(case.fn, case.args, strict=False, check_trace=False)
    with torch.no_grad():
        made = torch.jit.trace(case.fn, case.args, strict=False, check_trace=False)
        return torch.jit.optimize_for_inference(torch.jit.freeze(made))


def onnxruntime(case: Case):
    import onnxruntime

    with torch.no_grad():
        program = torch.onnx.export(case.fn, case.args, dynamo=True, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda *args: [
        torch.from_numpy(o) for o in session.run(None, dict(zip(names, map(torch.Tensor.numpy, args))))
    ]


def openvino(case: Case):
    """Where the case is bf16, its own way to that: a model of float32 that is told to compute in bf16."""
    import openvino

    narrow = next(case.fn.parameters()).dtype == torch.bfloat16
    wide = lambda a: a.float() if a.is_floating_point() else a
    with torch.no_grad():
        model = openvino.convert_model(copy.deepcopy(case.fn).float(), example_input=tuple(map(wide, case.args)))
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if narrow else "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = openvino.compile_model(model, "CPU", settings).create_infer_request()

    def run(*args):
        out = request.infer([wide(a).numpy() for a in args], share_inputs=True, share_outputs=True)
        return [torch.from_numpy(o).to(torch.bfloat16 if narrow else None) for o in out.values()]

    return run


OVERHEAD: dict[str, System] = {
    "eager": eager,
    "Braze": functools.partial(braze, backend="eager"),
    "torch.compile": functools.partial(torch_compile, backend="eager"),
    "Lazy Tensors": lazy_tensors,
}
SPEED: dict[str, System] = {
    "eager": eager,
    "Braze": braze,
    "Braze, C++": functools.partial(braze, options={"codegen": "cpp"}),
    "Braze frozen": functools.partial(braze, options={"freezing": True}),
    "torch.compile": torch_compile,
    "TorchScript": torchscript,
    "ONNX Runtime": onnxruntime,
    "OpenVINO": openvino,
}
NO_TRAINING = {"Braze frozen", "ONNX Runtime", "OpenVINO"}
PACKAGES = {"ONNX Runtime": ["onnx", "onnxscript", "onnxruntime"], "OpenVINO": ["openvino"]}

# Table 4: what is left out, and the options that leave it out.
OFF: dict[str, dict] = {
    "fusion": {"fuse": False},
    "inlining": {"inlining": False},
    "fusion and inlining": {"fuse": False, "inlining": False},
    "loop and layout reordering": {"reordering": False},
    "the scheduler's score": {"fusion_score": False},
    "patterns": {"patterns": False},
    "vector code": {"vectors": False},
}
# Parts that are off by default: the options that switch them on, and whether they need a GPU.
ON: dict[str, tuple[dict, bool]] = {
    "templates": ({"autotune_seconds": 10}, True),
    "CUDA Graphs": ({"cuda_graphs": True}, True),
    "parameter freezing": ({"freezing": True}, False),
}


def ablation() -> tuple[dict[str, System], dict[str, str]]:
    """Systems, and parts that this Braze or machine does not have, with the reason."""
    import braze as package

    systems: dict[str, System] = {"everything": braze}
    systems |= {f"without {part}": functools.partial(braze, options=options) for part, options in OFF.items()}
    absent = {}
    for part, (options, on_gpu) in ON.items():
        try:
            package.compile(tensors, options=options)
        except ValueError:
            absent[part] = "Braze has no such option"
            continue
        if on_gpu:
            absent[part] = "of GPUs only; this measures the CPU"
        else:
            systems[f"with {part}"] = functools.partial(braze, options=options)
    return systems, absent
