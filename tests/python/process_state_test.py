"""State of the process that captured code reads: a change of it must be seen by the next call. Every row of the table of PyTorch's
answers (src/capture/guards/torch_queries.def) that rests on such state is either changed here, or named with what keeps it from being."""

import contextlib
import pathlib
import re

import pytest
import torch
from harness import Graphs

import braze

SOURCES = pathlib.Path(__file__).parents[2] / "src"
TABLE = (SOURCES / "capture/guards/torch_queries.def").read_text()
PRIVATE = {
    row: (module, name)
    for row, module, name in re.findall(
        r'^BRAZE_PYTORCH_NAME\((\w+), "([^"]+)", "([^"]*)"', (SOURCES / "trace/pytorch/names.def").read_text(), re.M
    )
}
ROWS = re.findall(r'^BRAZE_TORCH_QUERY\("([^"]+)", "([^"]+)", (\w+)\)', TABLE, re.M)
ROWS += [(*PRIVATE[row], ground) for row, ground in re.findall(r"^BRAZE_PRIVATE_QUERY\((\w+), (\w+)\)", TABLE, re.M)]
C = torch._C


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def plain_setter(setter, *values):
    """`setter(value)` makes the state one of the two values; the first is what it is in a new process."""

    @contextlib.contextmanager
    def changed():
        setter(values[1])
        try:
            yield
        finally:
            setter(values[0])

    return changed


# Name -> a context in which the state is another, or a reason why it can't be changed here.
CHANGES = {
    "is_grad_enabled": plain_setter(torch._C._set_grad_enabled, True, False),
    "get_default_dtype": plain_setter(torch.set_default_dtype, torch.float32, torch.float64),
    "result_type": plain_setter(torch.set_default_dtype, torch.float32, torch.float64),
    "is_autocast_enabled": plain_setter(lambda on: torch.set_autocast_enabled("cpu", on), False, True),
    "is_autocast_cpu_enabled": plain_setter(lambda on: torch.set_autocast_enabled("cpu", on), False, True),
    "get_autocast_dtype": plain_setter(lambda t: torch.set_autocast_dtype("cpu", t), torch.bfloat16, torch.float16),
    "get_autocast_cpu_dtype": plain_setter(lambda t: torch.set_autocast_dtype("cpu", t), torch.bfloat16, torch.float16),
    "get_autocast_gpu_dtype": plain_setter(
        lambda t: torch.set_autocast_dtype("cuda", t), torch.float16, torch.bfloat16
    ),
    "is_autocast_cache_enabled": plain_setter(torch.set_autocast_cache_enabled, True, False),
    "are_deterministic_algorithms_enabled": plain_setter(torch.use_deterministic_algorithms, False, True),
    "_get_deterministic_algorithms": plain_setter(torch.use_deterministic_algorithms, False, True),
    "_get_deterministic_algorithms_warn_only": plain_setter(
        lambda w: torch.use_deterministic_algorithms(w, warn_only=w), False, True
    ),
    "get_deterministic_debug_mode": plain_setter(torch.set_deterministic_debug_mode, 0, 1),
    "_get_deterministic_fill_uninitialized_memory": plain_setter(
        C._set_deterministic_fill_uninitialized_memory, True, False
    ),
    "get_default_device": lambda: torch.device("meta"),
    "_get_default_device": "the device of an older interface, set together with the default tensor type",
    "has_torch_function": Mode,
    "has_torch_function_unary": Mode,
    "has_torch_function_variadic": Mode,
    "_has_torch_function": Mode,
    "_has_torch_function_unary": Mode,
    "_has_torch_function_variadic": Mode,
    "_are_functorch_transforms_active": "inside a transform the capture is another one altogether",
    "_get_cudnn_enabled": plain_setter(C._set_cudnn_enabled, True, False),
    "_get_cudnn_benchmark": plain_setter(C._set_cudnn_benchmark, False, True),
    "_get_cudnn_deterministic": plain_setter(C._set_cudnn_deterministic, False, True),
    "_get_mkldnn_enabled": plain_setter(C._set_mkldnn_enabled, True, False),
    "_get_flash_sdp_enabled": plain_setter(C._set_sdp_use_flash, True, False),
    "_get_mem_efficient_sdp_enabled": plain_setter(C._set_sdp_use_mem_efficient, True, False),
    "_get_math_sdp_enabled": plain_setter(C._set_sdp_use_math, True, False),
    "_get_cudnn_sdp_enabled": plain_setter(C._set_sdp_use_cudnn, True, False),
    "_get_overrideable_sdp_enabled": plain_setter(C._set_sdp_use_overrideable, True, False),
    "get_num_threads": plain_setter(torch.set_num_threads, 2, 1),
    "get_num_interop_threads": "can be set once, before any parallel work",
    "is_anomaly_enabled": plain_setter(lambda on: torch.set_anomaly_enabled(on, True), False, True),
    "is_anomaly_check_nan_enabled": plain_setter(lambda nan: torch.set_anomaly_enabled(False, nan), True, False),
    "_get_float32_matmul_precision": plain_setter(torch.set_float32_matmul_precision, "highest", "high"),
    "_get_cudnn_allow_tf32": plain_setter(C._set_cudnn_allow_tf32, True, False),
    "_get_cublas_allow_tf32": plain_setter(C._set_cublas_allow_tf32, False, True),
    "_get_onednn_allow_tf32": "needs an Intel GPU",
    "_get_fp32_precision_getter": plain_setter(
        lambda p: C._set_fp32_precision_setter("mkldnn", "matmul", p), "none", "bf16"
    ),
    "_get_cublas_allow_fp16_reduced_precision_reduction": "two flags at once, a tuple: the graph ends there",
    "_get_cublas_allow_bf16_reduced_precision_reduction": "two flags at once, a tuple: the graph ends there",
    "_get_cublas_allow_fp16_accumulation": plain_setter(C._set_cublas_allow_fp16_accumulation, False, True),
    "_get_math_sdp_allow_fp16_bf16_reduction": plain_setter(C._set_math_sdp_allow_fp16_bf16_reduction, False, True),
    "_get_nnpack_enabled": plain_setter(C._set_nnpack_enabled, True, False),
    "_get_linalg_preferred_backend": "an enumeration of C++: the graph ends there",
    "_get_blas_preferred_backend": "an enumeration of C++: the graph ends there",
    "_get_warnAlways": plain_setter(C._set_warnAlways, False, True),
    "_get_privateuse1_backend_name": "can be set once in a process",
    "_cuda_isInBadFork": "needs a GPU",
    "_cuda_isCurrentStreamCapturing": "needs a GPU",
    "_cuda_getDevice": "needs a GPU",
}
ARGUMENTS = {
    "result_type": (torch.ones(2, dtype=torch.int64), 1.5),
    "is_autocast_enabled": ("cpu",),
    "get_autocast_dtype": ("cpu",),
    "_get_fp32_precision_getter": ("mkldnn", "matmul"),
    "has_torch_function": ((torch.ones(2),),),
    "has_torch_function_unary": (torch.ones(2),),
    "has_torch_function_variadic": (torch.ones(2), torch.ones(2)),
    "_has_torch_function": ((torch.ones(2),),),
    "_has_torch_function_unary": (torch.ones(2),),
    "_has_torch_function_variadic": (torch.ones(2), torch.ones(2)),
}
STATEFUL = [(module, name) for module, name, ground in ROWS if ground in ("StateKey", "Asked")]


def test_the_table_is_read():
    assert len(ROWS) > 50 and len(STATEFUL) > 30


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module, name", STATEFUL, ids=[name for _, name in STATEFUL])
def test_changed_state_is_seen(module, name):
    change = CHANGES[name]
    if isinstance(change, str):
        pytest.skip(change)
    query = getattr(__import__(module, fromlist=["_"]), name)
    arguments = ARGUMENTS.get(name, ())
    graphs = Graphs()

    def f(x):
        y = x + 1
        answer = query(*arguments)
        return y * 2, answer

    compiled, x = braze.compile(f, backend=graphs, fullgraph=True), torch.ones(2)
    for _ in range(2):
        with change():
            other, got = query(*arguments), compiled(x)[1]
        assert got == other, "in the changed state"
        plain = query(*arguments)
        assert compiled(x)[1] == plain, "in the state of before"
        assert plain != other, "the state did not change"
    assert graphs.count >= 1


@pytest.mark.parametrize("name", ["enabled", "benchmark", "deterministic", "allow_tf32"])
def test_flags_of_a_backend(name):
    """Properties of a module: `torch.backends.cudnn.enabled` calls what the tests above change."""

    def f(x):
        return x * 2 if getattr(torch.backends.cudnn, name) else x * 3

    compiled, x = braze.compile(f, fullgraph=True), torch.ones(2)
    assert torch.equal(compiled(x), f(x))
    with CHANGES["_get_cudnn_" + name]():
        assert torch.equal(compiled(x), f(x))
    assert torch.equal(compiled(x), f(x))


def test_initialised_process_group(tmp_path):
    """What the program asks before its first collective, before and after it is part of a group."""
    import torch.distributed as dist

    def f(x):
        return x * 2 if dist.is_initialized() else x * 3

    compiled, x = braze.compile(f, fullgraph=True), torch.ones(2)
    assert compiled(x)[0] == 3
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        assert compiled(x)[0] == 2
    finally:
        dist.destroy_process_group()
    assert compiled(x)[0] == 3
