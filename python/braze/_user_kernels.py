"""Launches of the program's own Triton kernels, as compiled graphs make them. Used by braze._C alone."""

import itertools
import weakref

import torch

from . import _kernel_writes

_numbers = itertools.count(1)
_launches = weakref.WeakValueDictionary()


def find_launch(number):
    """The launch that a graph names so, or None."""
    return _launches.get(number)


class Launch:
    """A call `kernel[grid](...)` without its tensors and integers, which each run is given.

    How an argument is made is said by a pair: ("tensor", its place), ("float", the place of a tensor that holds it),
    ("integer", its place), ("constant", the object), ("tuple", how each item is made).
    """

    __module__ = "braze"
    __name__ = __qualname__ = "launch_kernel"

    def __init__(self, kernel, arguments, keywords, written, tensors, choices, grid_at):
        """`written`: places of tensors. `choices`: what each configuration of an autotuner passes, a dict; the integers
        from `grid_at` on are a grid of three for each."""
        self.kernel, self.arguments, self.keywords = kernel, arguments, keywords
        self.choices, self.grid_at = choices, grid_at
        self.is_written = [i in written for i in range(tensors)]
        self.number = next(_numbers)
        _launches[self.number] = self

    def __call__(self, tensors, integers):
        """As an operator: what capture records, and what a graph in torch.fx's form calls."""
        written = [t for t, w in zip(tensors, self.is_written) if w]
        read = [t for t, w in zip(tensors, self.is_written) if not w]
        torch.ops.braze.launch_kernel(written, read, integers, [], self.number)

    def run(self, written, read, integers):
        """By the program's kernel object: with its caches, its tuning and its hooks."""
        written, read = iter(written), iter(read)
        tensors = [next(written if w else read) for w in self.is_written]
        arguments = [_made(how, tensors, integers) for how in self.arguments]
        keywords = {name: _made(how, tensors, integers) for name, how in self.keywords}
        grids = [tuple(integers[i : i + 3]) for i in range(self.grid_at, len(integers), 3)]
        grid = grids[0] if len(grids) == 1 else self.chosen(grids)
        self.kernel.run(*arguments, grid=grid, warmup=False, **keywords)

    def chosen(self, grids):
        def grid(meta):
            for choice, found in zip(self.choices, grids):
                if all(meta[name] == value for name, value in choice.items() if name in meta):
                    return found
            raise RuntimeError("braze: a configuration of a Triton kernel that was not there when it was captured")

        return grid


def _made(how, tensors, integers):
    kind, what = how
    if kind == "tensor":
        return tensors[what]
    if kind == "integer":
        return integers[what]
    if kind == "constant":
        return what
    if kind == "float":
        return tensors[what].item()
    return tuple(_made(h, tensors, integers) for h in what)


def launch_of(kernel, arguments, keywords, owners, known, extra, grid_at):
    """The launch of a kernel, an autotuner or heuristics.

    `owners`: for each tensor the parameters that it is passed for. `known`: for each configuration the parameters'
    values that are constants. `extra`: parameters that others than the kernel write, or None: all of them.
    """
    written = None if extra is None else set(extra)
    for constants in known:
        if written is None:
            break
        found = _kernel_writes.written(_function(kernel), constants)
        written = None if found is None else written | found
    places = {i for i, names in enumerate(owners) if written is None or not written.isdisjoint(names)}
    return Launch(kernel, arguments, keywords, places, len(owners), known, grid_at)


def _function(kernel):
    while hasattr(kernel.fn, "fn"):
        kernel = kernel.fn
    return kernel


def operator_of(op, definitions):
    """What capture needs to evaluate a torch.library.triton_op in the place of calling it: its definition, its parameters
    and a Function of autograd that calls it; None: `op`, an overload or a packet of them, is none. `definitions`: PyTorch's, by name."""
    overload = isinstance(op, torch._ops.OpOverload)
    name = op._name.removesuffix(".default") if overload else op._qualified_op_name
    definition = definitions.get(name)
    function = getattr(definition, "_init_fn", None)
    if getattr(function, "__module__", "") != "torch._library.triton" or definition._abstract_fn is None:
        return None
    parameters = []
    for a in definition._opoverload._schema.arguments:
        if a.kwarg_only:
            return None
        parameters.append((a.name, a.has_default_value(), a.default_value if a.has_default_value() else None))
    return definition, tuple(parameters), _function_of(definition)


_functions = {}  # PyTorch keeps definitions until another of that name comes


def _function_of(definition):
    name = definition._qualname
    if name not in _functions or _functions[name][0] is not definition:

        class TritonOperator(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *args):
                result = definition._abstract_fn(*args)
                if definition._setup_context_fn is not None:
                    definition._setup_context_fn(ctx=ctx, inputs=args, output=result)
                return result

            @staticmethod
            def backward(ctx, *grads):
                return definition._backward_fn(ctx, *grads)

        _functions[name] = definition, TritonOperator
    return _functions[name][1]
