"""Which of its parameters a kernel in Triton's language writes through. Used by braze._user_kernels alone.

The kernel's source is evaluated on sets of parameters: of each value, those that it may be a pointer into. What is not
understood counts as written. Branches on constants that are known are taken as Triton takes them.
"""

import ast
import inspect
import textwrap

_NOTHING = frozenset()
_UNKNOWN = object()
_DEPTH = 16  # of calls

_WRITERS = {"store", "store_tensor_descriptor"}  # and atomic_*: through their first argument

# Functions of triton.language that write nothing and whose result is no pointer of their arguments'.
_VALUES = {
    "abs", "arange", "argmax", "argmin", "associative_scan", "assume", "clamp", "cumprod", "cumsum", "debug_barrier",
    "device_assert", "device_print", "dot", "dot_scaled", "histogram", "load", "load_tensor_descriptor", "max", "min",
    "num_programs", "program_id", "reduce", "sort", "static_assert", "static_print", "sum", "xor_sum", "zeros",
    "zeros_like",
}  # fmt: skip

# Those whose result may be one.
_MOVERS = {
    "advance", "broadcast", "broadcast_to", "cast", "cat", "expand_dims", "flip", "full", "gather", "interleave", "join",
    "make_block_ptr", "make_tensor_descriptor", "max_constancy", "max_contiguous", "maximum", "minimum", "multiple_of",
    "permute", "range", "ravel", "reshape", "softmax", "split", "static_range", "swizzle2d", "to", "trans", "to_tensor",
    "tuple", "view", "where",
}  # fmt: skip

# Modules of which nothing writes.
_PURE_MODULES = ("triton.language.math", "triton.language.standard", "triton.language.random")
_BUILTINS = {
    "abs",
    "bool",
    "float",
    "int",
    "isinstance",
    "len",
    "max",
    "min",
    "print",
    "range",
    "slice",
    "tuple",
    "zip",
}

# Attributes that are no pointers of their owner's.
_FACTS = {"dtype", "element_ty", "ndim", "numel", "shape", "strides", "type", "value"}


class NotUnderstood(Exception):
    pass


def written(kernel, known):
    """Names of parameters that a call of the kernel may write through; None: of any.

    `kernel`: what triton.jit made. `known`: the values of parameters that are constants.
    """
    try:
        function = _definition(kernel)
        names = [a.arg for a in function.args.posonlyargs + function.args.args + function.args.kwonlyargs]
        run = _Run(kernel, {n: known[n] for n in names if n in known}, 0)
        run.call(function, {n: frozenset((n,)) for n in names})
    except (NotUnderstood, OSError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError):
        return None
    return run.written


def _definition(kernel):
    source = getattr(kernel, "src", None)
    if not isinstance(source, str):
        source = textwrap.dedent(inspect.getsource(kernel.fn))
    found = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    if len(found) != 1:
        raise NotUnderstood
    return found[0]


def _is_jit(o):
    return {"JITFunction", "InterpretedFunction"} & {c.__name__ for c in type(o).__mro__} and inspect.isfunction(
        getattr(o, "fn", None)
    )


class _Run:
    """One call of one function of Triton's."""

    def __init__(self, kernel, known, depth):
        self.kernel, self.known, self.depth = kernel, known, depth
        self.written = set()
        self.returned = _NOTHING

    def call(self, function, values):
        stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self.known = {n: v for n, v in self.known.items() if n not in stored}
        self.local = stored | set(values)
        self.block(function.body, dict(values))

    # ---- statements: `env` is what names may point into, changed in place ----

    def block(self, body, env):
        for statement in body:
            method = getattr(self, "do_" + type(statement).__name__, None)
            if method is None:
                raise NotUnderstood
            method(statement, env)

    def do_Expr(self, s, env):
        self.value(s.value, env)

    def do_Pass(self, s, env):
        pass

    do_Break = do_Continue = do_Pass

    def do_Assert(self, s, env):
        self.value(s.test, env)

    def do_Return(self, s, env):
        if s.value is not None:
            self.returned |= self.value(s.value, env)

    def do_Assign(self, s, env):
        for target in s.targets:
            self.assign(target, s.value, env)

    def do_AnnAssign(self, s, env):
        if s.value is not None:
            self.assign(s.target, s.value, env)

    def do_AugAssign(self, s, env):
        self.store(s.target, self.value(s.target, env) | self.value(s.value, env), env)

    def do_If(self, s, env):
        test = self.constant(s.test)
        self.value(s.test, env)
        other = dict(env)
        if test is _UNKNOWN or test:
            self.block(s.body, env)
        if test is _UNKNOWN or not test:
            self.block(s.orelse, other)
        if test is _UNKNOWN:
            self.join(env, other)
        elif not test:
            env.clear()
            env.update(other)

    def do_For(self, s, env):
        def step(inside):
            self.store(s.target, self.value(s.iter, inside), inside)
            self.block(s.body, inside)

        self.loop(step, env)
        self.block(s.orelse, env)

    def do_While(self, s, env):
        def step(inside):
            self.value(s.test, inside)
            self.block(s.body, inside)

        self.loop(step, env)
        self.block(s.orelse, env)

    def do_With(self, s, env):
        for item in s.items:
            found = self.value(item.context_expr, env)
            if item.optional_vars is not None:
                self.store(item.optional_vars, found, env)
        self.block(s.body, env)

    def loop(self, step, env):
        while True:
            inside = dict(env)
            step(inside)
            if not self.join(env, inside):
                return

    @staticmethod
    def join(env, other):
        changed = False
        for name, found in other.items():
            if not found <= env.get(name, _NOTHING):
                env[name] = env.get(name, _NOTHING) | found
                changed = True
            env.setdefault(name, found)
        return changed

    def assign(self, target, value, env):
        pairs = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
        if pairs and not any(isinstance(e, ast.Starred) for e in target.elts + value.elts):
            found = [self.value(v, env) for v in value.elts]
            for t, f in zip(target.elts, found):
                self.store(t, f, env)
        else:
            self.store(target, self.value(value, env), env)

    def store(self, target, found, env):
        if isinstance(target, ast.Name):
            env[target.id] = found
        elif isinstance(target, (ast.Tuple, ast.List)):
            for t in target.elts:
                self.store(t, found, env)
        else:
            raise NotUnderstood  # an element, an attribute

    # ---- expressions: the parameters that the value may point into ----

    def value(self, e, env):
        if isinstance(e, ast.Constant):
            return _NOTHING
        if isinstance(e, ast.Name):
            return env.get(e.id, _NOTHING)
        if isinstance(e, ast.Call):
            return self.of_call(e, env)
        if isinstance(e, ast.Attribute):
            found = self.value(e.value, env)
            return _NOTHING if e.attr in _FACTS else found
        if isinstance(e, ast.NamedExpr):
            found = self.value(e.value, env)
            self.store(e.target, found, env)
            return found
        if isinstance(e, ast.IfExp):
            test = self.constant(e.test)
            self.value(e.test, env)
            if test is not _UNKNOWN:
                return self.value(e.body if test else e.orelse, env)
            return self.value(e.body, env) | self.value(e.orelse, env)
        if isinstance(e, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Await, ast.Yield)):
            raise NotUnderstood
        parts = [self.value(c, env) for c in ast.iter_child_nodes(e) if isinstance(c, ast.expr)]
        return _NOTHING.union(*parts)

    def of_call(self, e, env):
        receiver = _NOTHING
        called = self.object(e.func)
        if called is _UNKNOWN and isinstance(e.func, ast.Attribute):
            receiver = self.value(e.func.value, env)
        arguments = [self.value(a, env) for a in e.args]
        named = {k.arg: self.value(k.value, env) for k in e.keywords}
        everything = receiver.union(*arguments, *named.values())
        if called is not _UNKNOWN and _is_jit(called):
            if called.fn.__module__ in _PURE_MODULES:
                return everything
            return self.of_jit(called, e, arguments, named)
        kind, first = self.effect_of(called, e), receiver
        if called is not _UNKNOWN or not isinstance(e.func, ast.Attribute):
            first = arguments[0] if arguments else next(iter(named.values()), _NOTHING)
        if kind == "writes":
            self.written |= first
        elif kind == "anything":
            self.written |= everything
        return _NOTHING if kind == "value" else everything

    def effect_of(self, called, e):
        """What a call does: its result is a "value" or a "pointer" of its arguments', it "writes" through the first, or "anything"."""
        if called is _UNKNOWN:
            if not isinstance(e.func, ast.Attribute):
                return "anything"
            name = e.func.attr  # a method of a value: most functions of the language are
        else:
            name = getattr(called, "__name__", "")
            module = getattr(called, "__module__", None) or ""
            if isinstance(called, type) and module.startswith("triton."):
                return "pointer"
            if module == "builtins":
                return "pointer" if name in _BUILTINS else "anything"
            if module in _PURE_MODULES or "libdevice" in module or type(called).__name__ == "ConstexprFunction":
                return "pointer"
            if not module.startswith("triton.language"):
                return "anything"
        if name in _WRITERS or name.startswith("atomic_"):
            return "writes"
        if name in _VALUES or name.startswith("is_"):
            return "value"
        return "pointer" if name in _MOVERS else "anything"

    def of_jit(self, called, e, arguments, named):
        if self.depth >= _DEPTH or any(isinstance(a, ast.Starred) for a in e.args) or None in named:
            raise NotUnderstood
        function = _definition(called)
        names = [a.arg for a in function.args.posonlyargs + function.args.args]
        if function.args.vararg or function.args.kwarg or len(arguments) > len(names):
            raise NotUnderstood
        values = {n: _NOTHING for n in names}
        values.update(zip(names, arguments))
        values.update(named)
        known = {n: self.constant(a) for n, a in zip(names, e.args)}
        known.update((k.arg, self.constant(k.value)) for k in e.keywords)
        inner = _Run(called, {n: v for n, v in known.items() if v is not _UNKNOWN}, self.depth + 1)
        inner.call(function, values)
        self.written |= inner.written
        return inner.returned

    # ---- what is known ----

    def object(self, e):
        """The object that a name of the kernel's module stands for, or what is passed as a constant."""
        if isinstance(e, ast.Name):
            if e.id in self.known:
                return self.known[e.id]
            if e.id in self.local:
                return _UNKNOWN
            function = self.kernel.fn
            cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
            if e.id in cells:
                return cells[e.id].cell_contents
            if e.id in function.__globals__:
                return function.__globals__[e.id]
            builtins = function.__globals__.get("__builtins__", {})
            builtins = builtins if isinstance(builtins, dict) else vars(builtins)
            return builtins.get(e.id, _UNKNOWN)
        if isinstance(e, ast.Attribute):
            owner = self.object(e.value)
            return _UNKNOWN if owner is _UNKNOWN else getattr(owner, e.attr, _UNKNOWN)
        return _UNKNOWN

    def constant(self, e):
        """The value of an expression over parameters that are known."""
        if isinstance(e, ast.Constant):
            return e.value
        if isinstance(e, ast.Name):
            return self.known.get(e.id, _UNKNOWN)
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            value = self.constant(e.operand)
            return _UNKNOWN if value is _UNKNOWN else not value
        if isinstance(e, ast.BoolOp):
            values = [self.constant(v) for v in e.values]
            decides = isinstance(e.op, ast.Or)
            if any(v is not _UNKNOWN and bool(v) == decides for v in values):
                return decides
            return _UNKNOWN if any(v is _UNKNOWN for v in values) else not decides
        if isinstance(e, ast.Compare) and len(e.ops) == 1 and type(e.ops[0]) in _COMPARE:
            left, right = self.constant(e.left), self.constant(e.comparators[0])
            if left is _UNKNOWN or right is _UNKNOWN:
                return _UNKNOWN
            return bool(_COMPARE[type(e.ops[0])](left, right))
        return _UNKNOWN


_COMPARE = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
}
