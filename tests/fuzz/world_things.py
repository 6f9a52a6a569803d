"""Things that hang off each other: classes, objects, containers, functions, modules, and the places where they hang."""

import random
import re
from dataclasses import dataclass

from world_values import KEYS, LEAVES, NAMES, NUMBERS, TENSORS, Node


@dataclass
class Place:
    path: str
    set: str  # with {value}; or None
    delete: str
    node: Node
    seed: int  # of the structure
    depth: int


class Things:
    """Writes the set-up of a program and keeps the places where something hangs."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.setup, self.places, self.classes = [], [], []
        self.held = {
            "int",
            "tuple",
        }  # their instances have no weak references: compiled code holds what it is guarded by
        self.roots = 0
        self.dynamic_names = 0

    # ---- small choices ----

    def pick(self, options):
        return self.r.choice(options)

    def leaf(self, r=None):
        return (r or self.r).choice(LEAVES if (r or self.r).random() < 0.4 else NUMBERS)

    def place(self, kind=None):
        found = [p for p in self.places if p.node.kind == kind] if kind else self.places
        return self.pick(found or self.places)

    def fill(self, template, p, expression=None):
        """The template's text for the place p."""
        q = self.place(p.node.kind if self.r.random() < 0.6 else None)
        return template.format(
            p=p.path,
            q=q.path,
            c=self.pick(self.classes) if self.classes else "Fault",
            n=self.pick(NAMES),
            k=self.pick(KEYS),
            v=self.leaf(),
            t=self.pick(TENSORS),
            e=expression or self.leaf(),
        )

    # ---- classes ----

    def feature(self, cls):
        """One entry of a class: name and expression."""
        r, v, n = self.r, self.leaf(), self.pick(NAMES)
        number = self.pick(("1", "2", "3", "5", "0"))
        choice = r.randrange(26)
        if choice < 6:
            return n, v
        if choice < 10:
            return self.pick(("m", n)), self.pick(
                (
                    f"lambda self, n=1, *, k=2: self.{n}",
                    f"lambda self, n=1, *, k=2: n + k + {number}",
                    f"lambda self, n=1, *, k=2: super({cls}, self).m() + {number}",
                    f"lambda self, n=1, *, k=2: self.{n}",
                    f"lambda self, *a, **k: {v}",
                    f"lambda self, n={v}: n",
                )
            )
        if choice < 13:
            return n, self.pick(
                (
                    f"property(lambda self: {v})",
                    f"property(lambda self: self.__dict__.get('{n}', {v}))",
                    f"property(lambda self: K, lambda self, y: self.__dict__.update({n}=y))",
                    f"cached(lambda self: {v}, '{n}')",
                )
            )
        if choice < 16:
            return n, self.pick(
                (
                    f"staticmethod(lambda n=1, **k: {v})",
                    f"classmethod(lambda cls, n=1: cls.{n})",
                    f"classmethod(lambda cls: {v})",
                    f"Reads({v})",
                    f"Both({v})",
                    f"Plain({v})",
                    f"functools.partialmethod(lambda self, n: n, {v})",
                    f"functools.lru_cache(lambda self: {v})",
                )
            )
        if choice < 18:
            return self.pick(
                (
                    (
                        "__getattr__",
                        f"lambda self, name: {v} if name in ('{n}', 'tag') else object.__getattribute__(self, name)",
                    ),
                    (
                        "__getattribute__",
                        f"lambda self, name: {v} if name == '{n}' else object.__getattribute__(self, name)",
                    ),
                    ("__setattr__", f"lambda self, name, y: object.__setattr__(self, name, {v})"),
                    ("__delattr__", "lambda self, name: None"),
                )
            )
        return self.pick((("__len__", f"lambda self: {number}"), ("__bool__", f"lambda self: {self.pick(('True', 'False'))}"), ("__eq__", f"lambda self, o: {self.pick(('True', 'False', 'NotImplemented', 'self is o', 'type(o) is type(self)'))}"), ("__hash__", f"lambda self: {number}"),
                          ("__call__", f"lambda self, n=1: {v}"), ("__iter__", f"lambda self: iter([{v}, 2])"), ("__contains__", f"lambda self, o: o == {v}"), ("__getitem__", f"lambda self, i: [{v}, 2][i]"), ("__add__", f"lambda self, o: {v}"), ("__radd__", f"lambda self, o: {v}"),
                          ("__lt__", f"lambda self, o: {v}"), ("__le__", f"lambda self, o: {v}"), ("__int__", f"lambda self: {number}"), ("__float__", "lambda self: 2.5"), ("__index__", f"lambda self: {number}"), ("__str__", "lambda self: 'ab'"), ("__repr__", "lambda self: 'repr'"),
                          ("__format__", "lambda self, spec: 'abc'"), ("__neg__", f"lambda self: {v}"), ("__enter__", f"lambda self: {v}"), ("__exit__", "lambda self, *e: None"), ("__class_getitem__", f"classmethod(lambda cls, i: {v})"), ("__round__", f"lambda self: {v}"),
                          ("__ne__", f"lambda self, o: {self.pick(('True', 'False'))}"), ("__dir__", "lambda self: ['a', 'b']"), ("__doc__", "'text'"), ("__instancecheck__", f"lambda cls, o: {self.pick(('True', 'False'))}"), ("__reversed__", f"lambda self: iter([{v}])"), ("__abs__", f"lambda self: {v}"),
                          ("__class__", "property(lambda self: Fault)"), ("__get__", f"lambda self, o, cls: {v}"), ("__set__", "lambda self, o, y: None"), ("__next__", f"lambda self: {v}"), ("__missing__", f"lambda self, key: {v}"), ("__init__", "lambda self, *a: None"), ("__gt__", f"lambda self, o: {v}"),
                          ("__slots__", "()"), ("__annotations__", f"{{'a': {v}}}"), ("__del__", "lambda self: None"), ("__matmul__", f"lambda self, o: {v}"), ("__torch_function__", f"classmethod(lambda cls, f, t, a=(), k=None: {v})"), ("__sizeof__", "lambda self: 3")))  # fmt: skip

    def define_class(self):
        name = f"C{len(self.classes)}"
        r = self.r
        bases, meta = [], ""
        if self.classes and r.random() < 0.55:
            bases = r.sample(self.classes, min(len(self.classes), r.choice((1, 1, 2))))
            bases.sort(reverse=True)  # derived ones were defined later
        elif r.random() < 0.15:
            bases = [
                self.pick(
                    (
                        "dict",
                        "list",
                        "int",
                        "str",
                        "tuple",
                        "Marked",
                        "object",
                        "collections.OrderedDict",
                        "torch.nn.Module",
                        "types.SimpleNamespace",
                        "float",
                        "set",
                    )
                )
            ]
        if not bases and r.random() < 0.25:
            entries = [self.feature(name) for _ in range(r.randint(1, 2))]
            self.setup.append(
                "\n".join(
                    [
                        f"class M{name}(type):",
                        "    pass",
                        *(
                            f"    {n} = {e}"
                            for n, e in entries
                            if n
                            not in ("__slots__", "__class__", "__getattribute__", "__setattr__", "__eq__", "__dir__")
                        ),
                    ]
                )
            )
            meta = f"metaclass=M{name}"
        lines = [f"class {name}({', '.join([*bases, *([meta] if meta else [])])}):", "    pass"]
        if not bases and r.random() < 0.15:
            lines.append(
                f"    __slots__ = {self.pick((repr(NAMES[:2]), repr(NAMES[:3]), repr((NAMES[0], '__dict__')), repr((NAMES[1], '__weakref__'))))}"
            )
        for _ in range(r.randint(1, 4)):
            n, e = self.feature(name)
            if n != "__slots__" and not any("__slots__" in line and repr(n) in line for line in lines):
                lines.append(f"    {n} = {e}")
        self.setup.append("\n".join(lines))
        self.classes.append(name)
        if self.held & set(bases):
            self.held.add(name)

    # ---- things ----

    def node(self, kind, rs, rl, depth):
        """A thing of the kind: its structure from rs, its leaves from rl."""
        make = getattr(self, "make_" + kind, None)
        return make(rs, rl, depth)

    def any(self, rs, rl, depth):
        kinds = (
            ("leaf", "leaf", "tensor", "object")
            if depth <= 0
            else (
                "leaf",
                "tensor",
                "list",
                "dict",
                "object",
                "object",
                "function",
                "tuple",
                "set",
                "class",
                "partial",
                "space",
                "number",
                "method",
            )
        )
        kind = rs.choice(kinds)
        return self.node(kind, random.Random(rs.random()), rl, depth - 1)

    def make_leaf(self, rs, rl, depth):
        return Node("leaf", self.leaf(rl))

    def make_tensor(self, rs, rl, depth):
        return Node("tensor", rl.choice(TENSORS))

    def items(self, rs, rl, depth, n):
        return [self.any(rs, rl, depth) for _ in range(n)]

    def make_list(self, rs, rl, depth):
        kids = self.items(rs, rl, depth, rs.randint(1, 3))
        text = "[" + ", ".join(k.expr for k in kids) + "]"
        return Node(
            "list",
            rs.choice((text, text, f"ListOf({text})")),
            [(f"[{i}]", "{p} = {value}", k) for i, k in enumerate(kids)],
        )

    def make_dict(self, rs, rl, depth):
        kids = self.items(rs, rl, depth, rs.randint(1, 3))
        keys = rs.sample(KEYS, len(kids))
        text = "{" + ", ".join(f"{n}: {k.expr}" for n, k in zip(keys, kids)) + "}"
        return Node(
            "dict",
            rs.choice(
                (
                    text,
                    text,
                    f"collections.OrderedDict({text})",
                    f"collections.defaultdict(lambda: 5, {text})",
                    f"DictOf({text})",
                    f"collections.Counter({text})",
                )
            ),
            [(f"[{n}]", "{p} = {value}", k) for n, k in zip(keys, kids)],
        )

    def make_set(self, rs, rl, depth):
        return Node(
            "set",
            rs.choice(("{0}", "frozenset({0})", "SetOf({0})")).format(
                "{" + ", ".join(rl.choice(NUMBERS) for _ in range(rs.randint(1, 3))) + "}"
            ),
        )

    def make_object(self, rs, rl, depth):
        cls = rs.choice(self.classes)
        names = rs.sample(NAMES[:3], rs.randint(0, 2))
        kids = self.items(rs, rl, depth, len(names))
        return Node(
            "object",
            f"make({', '.join([cls, *(f'{n}={k.expr}' for n, k in zip(names, kids))])})",
            [(f".{n}", "{p} = {value}", k) for n, k in zip(names, kids)],
        )

    def make_class(self, rs, rl, depth):
        return Node("class", rs.choice([*self.classes, "Number", "Pair", "Data", "int", "Marked"]))

    def make_function(self, rs, rl, depth):
        v = self.leaf(rl)
        return Node(
            "function",
            rs.choice(
                (
                    f"lambda n={v}, *, k=2: n + k",
                    f"lambda n=1, *, k={v}: (n, k)",
                    f"closed({v})",
                    f"lambda n=1, *, k=2: K + n + {v}",
                    f"functools.wraps(closed)(lambda n=1, k=2: {v})",
                    "(lambda n=1, *, k=2: n)",
                    "torch.sin",
                    "len",
                    "make(Fault).add_note",
                )
            ),
        )

    def make_partial(self, rs, rl, depth):
        fn = (
            self.make_function(random.Random(rs.random()), rl, depth)
            if rs.random() < 0.7
            else self.make_partial(random.Random(rs.random()), rl, depth)
            if depth > 0
            else self.make_function(rs, rl, depth)
        )
        return Node(
            "partial",
            rs.choice(
                (f"functools.partial({fn.expr}, {self.leaf(rl)})", f"functools.partial({fn.expr}, k={self.leaf(rl)})")
            ),
            [(".func", None, fn)],
        )

    def make_method(self, rs, rl, depth):
        o = self.make_object(rs, rl, depth)
        return Node(
            "method",
            f"types.MethodType(lambda self, n=1, *, k=2: {self.pick(('self.a', 'n + k', 'self', 'self.b + n'))}, {o.expr})",
            [(".__self__", None, o)],
        )

    def make_module(self, rs, rl, depth):
        names = rs.sample(NAMES[:3], rs.randint(1, 2))
        kids = self.items(rs, rl, depth, len(names))
        return Node(
            "module",
            f"make({rs.choice(('types.ModuleType', 'types.ModuleType', 'Lazy', 'Computes'))}, __name__='mod', {', '.join(f'{n}={k.expr}' for n, k in zip(names, kids))})",
            [(f".{n}", "{p} = {value}", k) for n, k in zip(names, kids)],
        )

    def make_enum(self, rs, rl, depth):
        return Node("enum", rs.choice(("Number", "Small")))

    def make_tuple(self, rs, rl, depth):
        kids = self.items(rs, rl, depth, 2)
        a, b = (k.expr for k in kids)
        form = rs.choice(("({0}, {1})", "Pair({0}, {1})", "Typed({0}, {1})", "Items(({0}, {1}))"))
        return Node("tuple", form.format(a, b), [(f"[{i}]", None, k) for i, k in enumerate(kids)])

    def make_data(self, rs, rl, depth):
        kids = self.items(rs, rl, depth, 2)
        return Node(
            "data",
            f"{rs.choice(('Data', 'Data', 'Frozen'))}({kids[0].expr}, {kids[1].expr})",
            [(".a", "object.__setattr__({p0}, 'a', {value})", kids[0]), (".b", "{p} = {value}", kids[1])],
        )

    def make_weak(self, rs, rl, depth):
        return Node("weak", f"weakref.ref({self.target(rs)})")

    def target(self, rs):
        held = [
            p.path
            for p in self.places
            if re.match(r"make\((\w+)", p.node.expr) and re.match(r"make\((\w+)", p.node.expr)[1] in self.held
        ]
        found = [
            p.path
            for p in self.places
            if p.node.kind in ("object", "tensor", "set", "function", "nn", "class", "module", "data")
            and not any(p.path.startswith(h) for h in held)
        ]
        return rs.choice(found) if found else "Fault"

    def make_weakdict(self, rs, rl, depth):
        return Node("weakdict", f"weakref.WeakValueDictionary({{{rs.choice(KEYS)}: {self.target(rs)}}})")

    def make_context(self, rs, rl, depth):
        return Node(
            "context",
            rs.choice((f"contextvars.ContextVar('v', default={self.leaf(rl)})", "contextvars.ContextVar('v')")),
        )

    def make_nn(self, rs, rl, depth):
        return Node(
            "nn",
            rs.choice(("Net()", "Net()", "Other()", "torch.nn.Sequential(Net(), torch.nn.ReLU())")),
            [
                (".w", "{p} = {value}", Node("tensor", "torch.nn.Parameter(torch.ones(2, 3))")),
                (".buf", "{p} = {value}", Node("tensor", "torch.ones(2, 3)")),
                (".scale", "{p} = {value}", Node("leaf", "2")),
            ],
        )

    def make_cached(self, rs, rl, depth):
        return Node(
            "cached",
            rs.choice(
                (
                    f"functools.lru_cache(lambda n=1: n + {rl.choice(NUMBERS)})",
                    f"functools.cache(lambda n=1: (n, K, {self.leaf(rl)}))",
                )
            ),
        )

    def make_dispatch(self, rs, rl, depth):
        return Node("dispatch", f"functools.singledispatch(lambda y: {self.leaf(rl)})")

    def make_getter(self, rs, rl, depth):
        return Node(
            "getter",
            rs.choice(
                (
                    f"operator.attrgetter('{rl.choice(NAMES)}')",
                    f"operator.itemgetter({rl.choice(KEYS)})",
                    "operator.methodcaller('m')",
                )
            ),
        )

    def make_chain(self, rs, rl, depth):
        return Node(
            "chain",
            f"collections.ChainMap({{{rl.choice(KEYS)}: {self.leaf(rl)}}}, {{{rl.choice(KEYS)}: {self.leaf(rl)}, 'a': 1}})",
        )

    def make_proxy(self, rs, rl, depth):
        return Node("proxy", None)

    def make_deque(self, rs, rl, depth):
        return Node("deque", f"collections.deque([{self.leaf(rl)}, {self.leaf(rl)}]{rs.choice(('', ', maxlen=3'))})")

    def make_number(self, rs, rl, depth):
        return Node(
            "number",
            rs.choice((f"Whole({rl.choice('0123')})", f"Text({rl.choice(('1', 2, 3))})", f"Real({rl.choice('123')})")),
        )

    def make_error(self, rs, rl, depth):
        return Node("error", f"{rs.choice(('ValueError', 'KeyError', 'Fault'))}({self.leaf(rl)})")

    def make_space(self, rs, rl, depth):
        names = rs.sample(NAMES[:3], rs.randint(1, 2))
        kids = self.items(rs, rl, depth, len(names))
        return Node(
            "space",
            f"types.SimpleNamespace({', '.join(f'{n}={k.expr}' for n, k in zip(names, kids))})",
            [(f".{n}", "{p} = {value}", k) for n, k in zip(names, kids)],
        )

    def make_array(self, rs, rl, depth):
        return Node("array", f"np.arange({rl.choice('234')}.0)")

    def make_iterator(self, rs, rl, depth):
        first, then = self.leaf(rl), self.leaf(rl)
        made = rs.choice(("iter([{}, {}])", "steps({}, {})", "steps({}, {})", "(y for y in ({}, {}))"))
        return Node("iterator", made.format(first, then))

    def root(self):
        kind = self.pick(("leaf", "leaf", "tensor", "tensor", "list", "dict", "dict", "object", "object", "object", "object", "class", "class", "function", "function", "partial", "method", "module", "enum", "tuple", "data", "weak", "weakdict", "context", "nn", "nn", "cached", "dispatch", "getter", "chain",
                          "proxy", "deque", "number", "error", "space", "array", "set", "iterator"))  # fmt: skip
        name = f"g{self.roots}"
        self.roots += 1
        seed, depth = self.r.randrange(10**9), self.r.choice((0, 1, 1, 2))
        if kind == "proxy":
            self.setup.append(
                f"{name}_ = {{'a': {self.leaf()}, 1: {self.leaf()}}}\n{name} = types.MappingProxyType({name}_)"
            )
            return self.places.append(
                Place(name, None, f"del {name}", Node("proxy", f"types.MappingProxyType({name}_)"), seed, 0)
            )
        node = self.node(kind, random.Random(seed), self.r, depth)
        self.setup.append(f"{name} = {node.expr}")
        self.grow(name, name + " = {value}", node, seed, depth)

    def grow(self, path, set, node, seed, depth):
        self.places.append(Place(path, set, f"del {path}", node, seed, depth))
        for suffix, how, kid in node.kids:
            p = path + suffix
            self.grow(p, how and how.replace("{p0}", path).replace("{p}", p), kid, None, 0)
