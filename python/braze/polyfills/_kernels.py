"""Launches of Triton kernels: capture evaluates these in the place of Triton's own."""

import torch

from ._attention import not_captured


def kernel_kind(kernel):
    """Which of Triton's classes a kernel is of: "kernel", "autotuner" or "heuristics"."""
    raise RuntimeError("only capture knows Triton's classes")


def launch(kernel, args, kwargs, names, configs, extra, grids):
    """Records a launch."""
    raise RuntimeError("only capture records launches")


def run_kernel(kernel, *args, grid, warmup, **kwargs):
    """`run` of a kernel, an autotuner, or heuristics around one of these."""
    if warmup:
        not_captured("the warm-up of a Triton kernel")
    names = kernel.arg_names
    given = {**dict(zip(names, args)), **kwargs}
    configs = [{}]  # for each configuration what is passed besides
    extra = []  # what the layers around the kernel write; None: anything
    layer = kernel
    while (kind := kernel_kind(layer)) != "kernel":
        if kind == "autotuner":
            if getattr(layer, "user_defined_pre_hook", True) or getattr(layer, "user_defined_post_hook", True):
                extra = None
            for config in layer.configs:
                if config.pre_hook is not None:
                    extra = None
            if extra is not None:
                extra = [*extra, *layer.reset_to_zero, *layer.restore_value]
            configs = [{**c, **config.all_kwargs()} for c in configs for config in layer.configs]
        else:
            for name, function in layer.values.items():
                for c in configs:
                    c[name] = function({**given, **c})
        layer = layer.fn
    if layer.pre_run_hooks:
        extra = None
    defaults = layer.fn.__defaults__ or ()
    given = {**dict(zip(names[len(names) - len(defaults) :], defaults)), **given}
    configs = [{**given, **c} for c in configs]
    grids = [tuple(grid(c)) for c in configs] if callable(grid) else [tuple(grid)]
    for g in grids:
        if not 1 <= len(g) <= 3:
            not_captured("a grid of a Triton kernel that has not one to three sizes")
    launch(kernel, args, kwargs, names, configs, extra, [(*g, 1, 1)[:3] for g in grids])


def triton_operator(definition, parameters, function, *args, **kwargs):
    """A torch.library.triton_op by its function, whose launches are captured. NotImplemented: it is called as it is."""
    dtypes = ("_autocast_dtype", "_autocast_cpu_dtype", "_autocast_cuda_dtype")  # one, or of each kind of device
    if [*definition._backend_fns] != [None] or any(getattr(definition, name, None) for name in dtypes):
        return NotImplemented  # not that function on each device, or on other dtypes
    values = [*args]
    for name, has_default, default in parameters[len(args) :]:
        if name in kwargs:
            values.append(kwargs[name])
        elif has_default:
            values.append(default)
        else:
            return NotImplemented
    if len(values) != len(parameters) or len(args) + len(kwargs) > len(parameters):
        return NotImplemented
    needs_grad = torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values)
    if not needs_grad:
        with torch.no_grad():
            return definition._abstract_fn(*values)
    return NotImplemented if definition._backward_fn is None else function.apply(*values)
