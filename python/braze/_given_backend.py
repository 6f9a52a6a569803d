"""Graphs of open sizes for a backend that the user named."""

import copy

import sympy
import torch
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

_REMEMBERED = 1024  # size vectors whose variant is known without asking


class OpenSizes:
    """What a backend made of a graph of open sizes, called with the values of the symbols, then with the inputs.

    A backend is told of open sizes as torch.compile tells it: placeholders of sizes are torch.SymInt, and a fake tensor mode with the
    inputs' symbolic shapes is the tracing context's. What it asks of a size (torch.fx's ShapeEnv keeps that) holds for the callable that
    it returned: other sizes make it another.
    """

    def __init__(self, backend, module, args):
        self._backend, self._module, self._variants, self._known = backend, module, [], {}
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._names = [node.target for node in nodes if "braze_symbol" in node.meta]
        self._layouts = [
            node.meta["braze_layout"] for node in nodes[len(self._names) :]
        ]  # texts over those names: sizes, strides
        self.runs_module = False
        self._made(args)

    def __call__(self, *args):
        sizes = args[: len(self._names)]
        made = self._known.get(sizes)
        if made is None:
            made = next((made for holds, made in self._variants if holds(sizes)), None) or self._made(args)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[sizes] = made
        return made(*args)

    def _made(self, args):
        count = len(self._names)
        env = ShapeEnv(duck_shape=False)
        mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
        symbols = {name: self._symbol(env, name, value) for name, value in zip(self._names, args)}
        # A backend may write to its graph.
        module = torch.fx.GraphModule(self._module, copy.deepcopy(self._module.graph))
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        inputs = [*symbols.values(), *args[count:]]
        with tracing(TracingContext(mode)):
            for node, value in zip(nodes, symbols.values()):
                node.meta["example_value"] = value
            for node, tensor, layout in zip(nodes[count:], args[count:], self._layouts):
                node.meta["example_value"] = _fake(mode, tensor, layout, symbols)
            made = self._backend(module, inputs)
        if not callable(made):
            raise TypeError("braze: the backend did not return a callable")
        self.runs_module = made is module or getattr(made, "__self__", None) is module
        asked = [guard.expr for guard in env.guards]
        fixed = {at: args[at] for at, value in enumerate(symbols.values()) if isinstance(value, int)}
        open_ = {at: value.node.expr for at, value in enumerate(symbols.values()) if at not in fixed}
        least = {at: 2 for at, name in enumerate(self._names) if at in open_ and self._is_size(name)}

        def holds(sizes):
            if any(sizes[at] != value for at, value in fixed.items()) or any(sizes[at] < n for at, n in least.items()):
                return False
            values = {symbol: sizes[at] for at, symbol in open_.items()}
            return all(condition.subs(values) is sympy.true for condition in asked)

        self._variants.append((holds, made))
        return made

    def _is_size(self, name):
        return any(name in sizes for sizes, _ in self._layouts)

    def _symbol(self, env, name, value):
        from torch._dynamo.source import ConstantSource

        source = ConstantSource(name)
        if self._is_size(name):
            made = env.create_symbol(value, source, dynamic_dim=DimDynamic.DYNAMIC)
        else:
            made = env.create_unspecified_symbol(value, source, dynamic_dim=DimDynamic.DYNAMIC)
        return env.create_symintnode(made, hint=value, source=source)


def _fake(mode, tensor, layout, symbols):
    names = {**symbols, "Min": torch.sym_min, "Max": torch.sym_max}
    sizes, strides = ([eval(text, names) for text in texts] for texts in layout)  # noqa: S307: the compiler's own texts
    with mode:
        fake = torch.empty_strided(
            sizes, strides, dtype=tensor.dtype, device=tensor.device, requires_grad=tensor.requires_grad
        )
    mode.fake_tensor_converter.set_tensor_memo(tensor, fake)
    return fake
