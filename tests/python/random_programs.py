"""Random small functions that mix tensors, containers, closures, exceptions, generators, classes and graph breaks."""

import random


class Writer:
    """Writes one function `f(x, n, items, table, log)` as text. Every name that a statement reads is bound before it."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.lines = []
        self.fresh = 0
        self.vars = {
            "tensor": ["x"],
            "int": ["n"],
            "list": ["items"],
            "dict": ["table"],
            "str": [],
            "fun": [],
            "set": [],
        }
        self.loops = 0

    def name(self, kind):
        self.fresh += 1
        return f"{kind[0]}{self.fresh}"

    def line(self, depth, text):
        self.lines.append("    " * depth + text)

    def pick(self, kind):
        return self.r.choice(self.vars[kind]) if self.vars[kind] else None

    # ---- expressions ----

    def int(self, d=2):
        r = self.r
        if d == 0 or r.random() < 0.3:
            return r.choice([str(r.randint(-3, 5)), self.pick("int")])
        choice = r.randrange(9)
        if choice == 0:
            return f"({self.int(d - 1)} {r.choice(['+', '-', '*'])} {self.int(d - 1)})"
        if choice == 1:
            return f"({self.int(d - 1)} {r.choice(['//', '%'])} {self.int(d - 1)})"
        if choice == 2:
            return f"len({self.pick('list')})"
        if choice == 3:
            return f"({self.int(d - 1)} if {self.cond(d - 1)} else {self.int(d - 1)})"
        if choice == 4:
            return f"sum(v for v in {self.pick('list')} if isinstance(v, int))"
        if choice == 5:
            return f"{self.pick('dict')}.get({r.choice(['1', repr('a'), repr('zz')])}, {self.int(d - 1)})"
        if choice == 6:
            return f"max({self.int(d - 1)}, {self.int(d - 1)})"
        if choice == 7 and self.vars["fun"]:
            return f"{self.pick('fun')}({self.int(d - 1)})"
        return f"int({self.pick('list')}[{self.int(0)}])"

    def cond(self, d=1):
        r = self.r
        choice = r.randrange(5)
        if choice == 0:
            return f"{self.int(d)} {r.choice(['<', '>', '==', '!=', '<=', '>='])} {self.int(d)}"
        if choice == 1:
            return f"{self.int(0)} in {self.pick('list')}"
        if choice == 2:
            return f"{self.pick('dict')}"
        if choice == 3:
            return f"not {self.int(0)}"
        return (
            f"{self.pick('tensor')}.sum() > {self.r.randint(-2, 2)}"
            if r.random() < 0.5
            else f"{self.int(d)} and {self.int(d)}"
        )

    def tensor(self, d=2):
        r = self.r
        if d == 0 or r.random() < 0.3:
            return self.pick("tensor")
        choice = r.randrange(8)
        if choice < 3:
            return f"({self.tensor(d - 1)} {r.choice(['+', '-', '*'])} {r.choice([self.tensor(d - 1), self.int(0)])})"
        if choice == 3:
            return f"torch.{r.choice(['relu', 'tanh', 'sin', 'abs'])}({self.tensor(d - 1)})"
        if choice == 4:
            return f"{self.tensor(d - 1)}.clone().{r.choice(['add_', 'mul_', 'sub_'])}({self.int(0)})"
        if choice == 5:
            return f"torch.stack([{self.tensor(d - 1)}, {self.tensor(d - 1)}]).sum(0)"
        if choice == 6:
            return f"({self.tensor(d - 1)} if {self.cond(d - 1)} else {self.tensor(d - 1)})"
        return f"{self.tensor(d - 1)}.reshape(-1).reshape(x.shape)"

    def list(self):
        r = self.r
        choice = r.randrange(9)
        if choice == 0:
            return f"[{self.int(1)}, {self.int(1)}, {self.r.choice([repr('q'), '2'])}]"
        if choice == 1:
            return f"[v for v in {self.pick('list')} if v != {self.int(0)}]"
        if choice == 2:
            return f"list(range({self.r.randint(0, 4)}, {self.r.randint(3, 7)}))"
        if choice == 3:
            return f"sorted({self.pick('dict')}, key=str, reverse={r.choice([True, False])})"
        if choice == 4:
            return f"{self.pick('list')}[{self.int(0)}:{self.int(0)}]"
        if choice == 5:
            return f"list({{{self.int(0)}, {self.int(0)}, {self.int(0)}, 'k'}})"
        if choice == 6:
            return f"[k for k, v in {self.pick('dict')}.items() if v is not None]"
        if choice == 7:
            return f"list(map(lambda v, s={self.int(0)}: (v, s), {self.pick('list')}))"
        return f"list(zip({self.pick('list')}, range(3), reversed({self.pick('list')})))"

    def dict(self):
        r = self.r
        choice = r.randrange(4)
        if choice == 0:
            return f"{{1: {self.int(1)}, 'a': {self.int(0)}}}"
        if choice == 1:
            return f"{{v: i for i, v in enumerate({self.pick('list')}) if isinstance(v, (int, str))}}"
        if choice == 2:
            return f"{{**{self.pick('dict')}, 'm': {self.int(1)}}}"
        return f"dict.fromkeys('ab', {self.int(0)})"

    def string(self):
        return self.r.choice(
            [
                'f"{' + self.int(1) + ":>3}|{" + self.pick("list") + '!r}"',
                f"'-'.join(str(v) for v in {self.pick('list')})",
                f"'%s:%s' % ({self.int(0)}, {self.pick('dict')})",
            ]
        )

    # ---- statements ----

    def bind(self, depth, kind, text):
        name = self.r.choice(self.vars[kind]) if self.vars[kind] and self.r.random() < 0.3 else self.name(kind)
        if name in ("x", "n", "items", "table"):
            name = self.name(kind)
        self.line(depth, f"{name} = {text}")
        if name not in self.vars[kind]:
            self.vars[kind].append(name)

    def scoped(self, write):
        """What a block binds may be unbound after it."""
        before = {k: list(v) for k, v in self.vars.items()}
        write()
        self.vars = before

    def block(self, depth, n):
        for _ in range(n):
            self.statement(depth)

    def statement(self, depth):
        r = self.r
        choice = r.randrange(24) if depth < 4 else r.randrange(10)
        if choice < 3:
            self.bind(depth, "tensor", self.tensor())
        elif choice == 3:
            self.bind(depth, "int", self.int())
        elif choice == 4:
            self.bind(depth, "list", self.list())
        elif choice == 5:
            self.bind(depth, "dict", self.dict())
        elif choice == 6:
            self.line(depth, f"log.append({self.string()})")
        elif choice == 7:
            self.line(
                depth,
                r.choice(
                    [
                        f"{self.pick('list')}.append({self.int(1)})",
                        f"{self.pick('dict')}[{self.r.choice(['1', repr('b')])}] = {self.int(1)}",
                        f"{self.pick('list')}.insert(0, {self.int(0)})",
                        f"{self.pick('dict')}.pop({self.r.choice(['1', repr('a')])}, None)",
                        f"{self.pick('list')}.sort(key=str)",
                        f"{self.pick('list')}[{self.int(0)}] = {self.int(1)}",
                    ]
                ),
            )
        elif choice == 8:
            self.line(
                depth,
                "probe(log, "
                + r.choice([self.int(1), self.pick("list"), f"{self.pick('tensor')}.sum().item() > 0"])
                + ")",
            )  # a graph break
        elif choice == 9:
            self.line(
                depth,
                r.choice([f"x.add_({self.int(0)})", f"log.append(type({self.pick('list')}[-1:]).__name__)", "pass"]),
            )
        elif choice in (10, 11):
            self.line(depth, f"if {self.cond()}:")
            self.scoped(lambda: self.block(depth + 1, r.randint(1, 2)))
            if r.random() < 0.5:
                self.line(depth, "else:")
                self.scoped(lambda: self.block(depth + 1, r.randint(1, 2)))
        elif choice in (12, 13) and self.loops < 2:
            self.loops += 1
            name = self.name("int")
            self.line(
                depth,
                f"for {name} in {r.choice([f'range({r.randint(1, 3)})', '[v for v in ' + self.pick('list') + ' if isinstance(v, int)][:3]'])}:",
            )

            def body():
                self.vars["int"].append(name)
                self.block(depth + 1, r.randint(1, 2))
                if r.random() < 0.3:
                    self.line(depth + 1, f"if {self.cond()}:")
                    self.line(depth + 2, r.choice(["break", "continue"]))

            self.scoped(body)
            self.loops -= 1
        elif choice in (14, 15):
            self.line(depth, "try:")
            self.scoped(lambda: self.block(depth + 1, r.randint(1, 3)))
            if r.random() < 0.4:
                self.line(depth + 1, f"raise {r.choice(['ValueError', 'KeyError', 'Custom'])}({self.int(0)})")
            kinds = r.choice(["(ValueError, IndexError)", "Exception", "(TypeError, Custom)", "ZeroDivisionError"])
            error = self.name("error")
            self.line(depth, f"except {kinds} as {error}:")
            self.line(depth + 1, f"log.append((type({error}).__name__, {error}.args))")
            if r.random() < 0.3:
                self.line(depth + 1, f"probe(log, repr({error}))")
            self.scoped(lambda: self.block(depth + 1, 1))
            if r.random() < 0.3:
                self.line(
                    depth + 1,
                    r.choice(["raise", f"raise Custom({self.int(0)}) from {error}", f"raise Custom({self.int(0)})"]),
                )
            if r.random() < 0.4:
                self.line(depth, "finally:")
                self.scoped(lambda: self.block(depth + 1, 1))
        elif choice == 16:
            name = self.name("gun")
            self.line(depth, f"def {name}(a, b={self.int(0)}):")
            if r.random() < 0.4:
                self.line(depth + 1, "nonlocal_count[0] += 1")
            self.line(depth + 1, f"return a * {self.int(1)} + b")
            self.vars["fun"].append(name)
        elif choice == 17:
            name = self.name("gen")
            self.line(depth, f"def {name}(k):")
            self.line(depth + 1, "try:")
            self.line(depth + 2, f"for i in range({r.randint(1, 3)}):")
            self.line(depth + 3, "got = yield i * k")
            self.line(depth + 3, "log.append(got)")
            self.line(depth + 1, "finally:")
            self.line(depth + 2, "log.append('closed')")
            self.bind(
                depth,
                "list",
                r.choice(
                    [f"list({name}({self.int(0)}))", f"[v for v in {name}({self.int(0)})]", f"[*{name}(2), *{name}(3)]"]
                ),
            )
        elif choice == 18:
            self.line(depth, f"with Managed(log, {r.choice(['True', 'False'])}) as m:")
            self.scoped(lambda: self.block(depth + 1, r.randint(1, 2)))
            if r.random() < 0.3:
                self.line(depth + 1, f"raise Custom({self.int(0)})")
        elif choice == 19:
            name = self.name("obj")
            self.line(depth, f"{name} = Point({self.int(1)}, {self.int(1)})")
            self.line(
                depth, r.choice([f"{name}.a += 1", f"{name}.b = {self.int(1)}", f"setattr({name}, 'c', {self.int(0)})"])
            )
            self.bind(
                depth, "int", r.choice([f"{name}.total()", f"({name} + Point(1, 2)).a", f"int({name} == Point(1, 2))"])
            )
        elif choice == 20:
            self.line(depth, f"*rest, last = {self.pick('list')} or [0]")
            self.line(depth, "log.append((len(rest), str(last)))")
        elif choice == 21:
            self.line(depth, f"match {r.choice([self.pick('list'), self.pick('dict'), self.int(1)])}:")
            for pattern in r.sample(["[a, *_]", "{'a': v}", "int() as k", "[]"], 2) + ["_"]:
                self.line(depth + 1, f"case {pattern}:")
                self.line(depth + 2, f"log.append({pattern!r})")
        elif choice == 22:
            self.line(depth, f"while (w := len(log)) < {r.randint(0, 3)}:")
            self.line(depth + 1, "log.append(w)")
        else:
            self.line(depth, f"log.append(sorted({{{self.int(0)}, {self.int(0)}, 9}} | set(range({r.randint(0, 3)}))))")

    def text(self):
        self.line(0, "def f(x, n, items, table, log):")
        self.line(1, "nonlocal_count = [0]")
        self.block(1, self.r.randint(4, 9))
        self.line(
            1,
            "return "
            + ", ".join(
                [self.tensor(), self.int(1), self.pick("list"), self.pick("dict"), self.string(), "nonlocal_count"]
            ),
        )
        return "\n".join(self.lines) + "\n"


PRELUDE = """
import torch

class Custom(Exception):
    pass

class Managed:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(("exit", kind.__name__ if kind else None))
        return self.swallow and kind is Custom

class Point:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def total(self):
        return self.a + self.b

    def __add__(self, other):
        return Point(self.a + other.a, self.b + other.b)

    def __eq__(self, other):
        return isinstance(other, Point) and (self.a, self.b) == (other.a, other.b)

    __hash__ = None
"""


class SizesWriter(Writer):
    """Programs that compute with the sizes of x as well."""

    def int(self, d=2):
        r = self.r
        if r.random() < 0.7:
            return super().int(d)
        if d == 0:
            return "x.shape[0]"
        n = self.int(0)
        return r.choice(
            [
                "x.shape[0]",
                "x.numel()",
                f"{self.tensor(0)}.shape[-1]",
                f"int({n} / 2)",
                f"({n} ** 2 % 7)",
                f"({n} & 3)",
                f"(({n} > 2) + 1)",
                f"abs({n})",
                f"divmod({n}, 3)[0]",
                f"int(min({n}, 2.5))",
                f"len(str({n}))",
                f"len(range({n}))",
                f"x[: {n}].shape[0]",
                f"round({n} / 3)",
                f"({n} << 1)",
                "sum(x.shape)",
                "x.shape.numel()",
                f"sorted([{n}, x.shape[0], 2])[1]",
                f"[*range(9)][{n} % 9]",
            ]
        )

    def tensor(self, d=2):
        if d == 0 or self.r.random() < 0.8:
            return super().tensor(d)
        inner = self.tensor(d - 1)
        return self.r.choice(
            [
                f"({inner} * x.shape[0])",
                f"{inner}.reshape(x.numel()).view(x.shape[0], -1)",
                f"torch.cat([{inner}, x])[: x.shape[0]]",
                f"({inner} + torch.arange(x.shape[0]).unsqueeze(1))",
                f"{inner}.flip(0)",
                f"torch.softmax({inner}, 0)",
                f"{inner}.t().contiguous().t()",
            ]
        )


def program(seed, sizes=False):
    """The text of a module whose `f` takes (tensor, int, list, dict, log)."""
    return PRELUDE + "\n" + (SizesWriter if sizes else Writer)(seed).text()
