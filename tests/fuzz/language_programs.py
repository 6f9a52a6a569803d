"""Random Python of classes, generators, closures, exceptions, containers and the standard library around small tensors and graph breaks.

A program is lines of `f(x, n, items, table, log)`. Each line of a block stands alone: whatever it needs is bound before it, so that lines
and blocks can be dropped.
"""

from dataclasses import dataclass, field
from pathlib import Path

from language_expressions import Expressions

PRELUDE = Path(__file__).with_name("language_prelude.py").read_text().split("\n", 2)[2]


@dataclass
class Block:
    """A statement: its head, and blocks that are indented under it."""

    head: str
    body: list = field(default_factory=list)
    tails: list = field(default_factory=list)  # further heads with bodies: else, except, finally

    def lines(self, depth):
        pad = "    " * depth
        out = [pad + line for line in self.head.splitlines()]
        if not self.head.rstrip().endswith(":"):
            return out
        for head, body in [(None, self.body), *self.tails]:
            if head:
                out += [pad + line for line in head.splitlines()]
            inner = [line for b in body for line in b.lines(depth + 1)]
            out += inner or ["    " * (depth + 1) + "pass"]
        return out


class Writer(Expressions):
    def scoped(self, write):
        """What is bound in a block may be unbound after it."""
        names = ("ints", "lists", "dicts", "points", "calls", "tensors", "sets")
        before = {k: list(getattr(self, k)) for k in names}
        out = write()
        for k in names:
            setattr(self, k, before[k])
        return out

    def block(self, depth, low=1, high=3):
        return self.scoped(lambda: [self.statement(depth) for _ in range(self.r.randint(low, high))])

    def bind(self, where, prefix, text):
        own = [v for v in where if v[0] == prefix and v[1:].isdigit()]
        name = self.pick(own) if own and self.r.random() < 0.25 else self.name(prefix)
        if name not in where:
            where.append(name)
        return Block(f"{name} = {text}")

    def error(self):
        return self.pick(
            [
                f"ValueError({self.int(0)})",
                f"Fault({self.int(0)}, 'f')",
                f"Deep({self.int(0)})",
                "KeyError('k')",
                "Fault",
                f"TypeError('t', {self.int(0)})",
                "StopIteration(3)",
                "LookupError",
            ]
        )

    def statement(self, depth):
        r = self.r
        if r.random() < 0.05:
            return self.held()
        simple = depth > 3
        choice = r.randrange(12 if simple else 34)
        if choice < 3:
            return self.bind(self.tensors, "t", self.tensor())
        if choice == 3:
            return self.bind(self.ints, "i", self.int())
        if choice == 4:
            return self.bind(self.lists, "l", self.list())
        if choice == 5:
            return self.bind(self.dicts, "d", self.dict())
        if choice == 6:
            return self.bind(
                self.points, "p", f"{self.pick(['Point', 'Third', 'Point.make', 'Third.make'])}({self.int(1)})"
            )
        if choice == 7:
            return Block(
                f"log.append({self.pick([self.string(), self.string(), self.int(), self.list(), f'type({self.list()}).__name__'])})"
            )
        if choice == 8:
            q, t = self.pick(self.lists), self.pick(self.dicts)
            return Block(
                self.pick(
                    [
                        f"{q}.append({self.int(1)})",
                        f"{t}[{self.key()}] = {self.int(1)}",
                        f"{q}.insert(0, {self.int(0)})",
                        f"{t}.pop({self.key()}, None)",
                        f"{q}.sort(key=str, reverse={self.pick(['True', 'False'])})",
                        f"{q}[{self.int(0)}] = {self.int(1)}",
                        f"del {t}[{self.key()}]",
                        f"del {q}[{self.int(0)}:]",
                        f"{t}.setdefault({self.key()}, []).append({self.int(0)})",
                        f"{q} += ({self.int(0)},)",
                        f"{q}.extend([*{self.ints_of()}][:5])",
                        f"{t}.update(a={self.int(0)}, **{{'b': 2}})",
                        f"{q}[1:1] = {self.list(0)}[:3]",
                        f"{q}.remove({self.int(0)})",
                        f"{t} |= {{{self.key()}: {self.int(0)}}}" if t != "table" else "pass",
                        f"{q}[:], {q}[:] = [1], {q}",
                        f"log.extend({self.ints_of()})",
                    ]
                )
            )
        if choice == 9:
            return Block(
                "probe(log, "
                + self.pick(
                    [self.int(1), self.pick(self.lists), f"{self.pick(self.tensors)}.sum().item() > 0", self.string()]
                )
                + ")"
            )
        if choice == 10:
            if self.points and r.random() < 0.6:
                p = self.pick(self.points)
                return Block(
                    self.pick(
                        [
                            f"{p}.a += {self.int(0)}",
                            f"{p}.total = {self.int(0)}",
                            f"{p} += {self.int(0)}",
                            f"setattr({p}, 'z', {self.int(0)})",
                            f"del {p}.b",
                            f"{p}.b = {self.list(0)}",
                            f"{p}.__dict__.update(a={self.int(0)})",
                            f"{p}.t = {self.tensor(1)}",
                            f"{p} = {p} + Point(1)",
                        ]
                    )
                )
            return Block(
                self.pick(
                    [
                        f"x.add_({self.int(0)})",
                        "n += 1",
                        f"n -= {self.int(0)}",
                        f"LEVEL = {self.int(1)}",
                        f"{self.pick(self.tensors)}.mul_(2)",
                        f"x[0] = {self.int(0)}",
                        f"assert {self.cond()}, {self.string()}",
                    ]
                )
            )
        if choice == 11:
            a, b = self.name("i"), self.name("i")
            self.ints += [a, b]
            return Block(
                self.pick(
                    [
                        f"{a}, {b} = {self.int(0)}, {self.int(1)}",
                        f"{a}, ({b}, *_) = {self.int(0)}, ({self.int(0)}, 1, 2)",
                        f"{a} = {b} = {self.int()}",
                        f"*_, {a}, {b} = [0, 1, {self.int(0)}]",
                        f"({a}, {b}), z = divmod({self.int(0)}, 2), 1",
                        f"for {a}, {b} in [(1, 2), ({self.int(0)}, 4)]: pass",
                    ]
                )
            )
        if choice < 15:
            return Block(
                f"if {self.cond()}:",
                self.block(depth + 1, 1, 2),
                [(f"elif {self.cond()}:", self.block(depth + 1, 1, 1))] * (r.random() < 0.2)
                + [("else:", self.block(depth + 1, 1, 2))] * (r.random() < 0.5),
            )
        if choice < 18 and self.loops < 2:
            return self.loop(depth)
        if choice < 22:
            return self.attempt(depth)
        if choice < 25:
            return self.function(depth)
        if choice < 27:
            context = self.pick(
                [
                    "managed(log, 'c')",
                    "managed(log, 'c', (Fault, ValueError))",
                    f"Third({self.int(0)}) as th",
                    "contextlib.suppress(ValueError, IndexError)",
                    "managed(log, 1), managed(log, 2, Exception)",
                    "torch.no_grad()",
                    "managed(log, 'c') as name",
                ]
            )
            body = self.block(depth + 1)
            if r.random() < 0.3:
                body.append(Block(f"raise {self.error()}"))
            return Block(f"with {context}:", body)
        if choice == 27:
            subject = self.pick(
                [
                    self.list(0),
                    self.dict(0),
                    self.int(1),
                    f"Third({self.int(0)}, 2)",
                    f"({self.int(0)}, [1, {self.int(0)}])",
                ]
            )
            patterns = r.sample(
                [
                    "[a, *_]",
                    "{'a': v, **rest}",
                    "int() as k if k > 1",
                    "[]",
                    "Third(a, b)",
                    "Point(a=0)",
                    "(1, [q, *_])",
                    "0 | 1",
                    "str()",
                    "[[_, _], *_]",
                    "None",
                ],
                3,
            )
            return Block(
                f"match {subject}:\n"
                + "\n".join(f"    case {p}:\n        log.append({p!r})" for p in patterns)
                + "\n    case other:\n        log.append('other')"
            )
        if choice == 28:
            cls = self.name("K")
            base = self.pick(["Point", "Third", "", "dict", "Fault", "list"])
            init = base in ("Point", "Third")
            self.points += [cls.lower()] if init else []
            return Block(
                f"class {cls}({base}):\n    k = {self.int(0)}\n\n    def m(self, v=n):\n        return v + self.k\n\n    @property\n    def q(self):\n        return self.m({self.int(0)})\n\n\n{cls.lower()} = {cls}({self.int(0) if init else ''})\nlog.append(({cls.lower()}.m(), {cls.lower()}.q, {cls}.__name__))"
            )
        if choice == 29:
            g = self.name("g")
            return Block(
                f"{g} = {self.pick(['numbers', 'delegating'])}({r.randint(1, 3)}, log)\nlog.append(next({g}, 'none'))\n"
                + self.pick(
                    [
                        f"log.append({g}.send('sent'))",
                        f"{g}.close()",
                        f"for v in {g}:\n    log.append(v)\n    break",
                        f"{g}.throw({self.error()})",
                        f"a, *b = {g}\nlog.append((a, b))",
                        f"log.append([*{g}])",
                    ]
                )
            )
        if choice == 30:
            return (
                Block(f"log.append({self.string()})")
                if self.tries == 0 or r.random() < 0.6
                else Block(f"raise {self.error()}" + self.pick(["", "", " from None", " from KeyError(1)"]))
            )
        if choice == 31:
            name = self.name("i")
            self.ints.append(name)
            return Block(f"{name} = {self.pick(['bool', 'not '])}({self.cond(2)})")
        if choice == 32:
            v = self.pick([*self.ints, *self.lists])
            if v in ("n", "items", "table"):
                return Block("pass")
            for where in (self.ints, self.lists):
                if v in where:
                    where.remove(v)
            return Block(f"del {v}")
        if depth > 1 and r.random() < 0.4:
            return Block(f"return {self.tensor()}, {self.int(1)}")
        return Block("pass")

    def held(self):
        """Generators that one call makes and another goes on with."""
        r, at = self.r, self.pick([-1, -1, 0])
        make = self.pick(["numbers({}, log)", "delegating({}, log)", "(v * n for v in range({}))"]).format(
            r.randint(1, 5)
        )
        flow = self.pick(
            [
                f"streaming({self.tensor(0)}, {r.randint(1, 6)})",
                f"({self.tensor(0)} * v for v in range({r.randint(1, 4)}))",
            ]
        )
        name = self.name("x")
        return Block(
            self.pick(
                [
                    f"HELD.append({make})",
                    f"HELD.append({make})\nlog.append(next(HELD[-1]))",
                    f"log.append(next(HELD[{at}], 'none') if HELD else None)",
                    f"for v in HELD[{at}:]:\n    log.append(next(v, 'none'))",
                    f"if HELD:\n    log.append([*HELD.pop({at})])",
                    f"if HELD:\n    HELD.pop({at}).close()",
                    f"FLOW.append({flow})",
                    f"FLOW.append({flow})\n{name} = next(FLOW[-1], 1) + x",
                    f"{name} = x + next(FLOW[{at}], 0) if FLOW else x\nlog.append({name})",
                    f"for {name} in FLOW[{at}:]:\n    log.append(next({name}, 'none'))",
                    f"if FLOW:\n    log.append([*FLOW.pop({at})])",
                ]
            )
        )

    def loop(self, depth):
        self.loops += 1

        def write():
            name = self.name("i")
            self.ints.append(name)
            body = self.block(depth + 1, 1, 2)
            if self.r.random() < 0.4:
                body.append(Block(f"if {self.cond()}:", [Block(self.pick(["break", "continue"]))]))
            if self.r.random() < 0.3:
                stop = self.name("w")
                return [
                    Block(f"{stop} = 0"),
                    Block(
                        f"while {stop} < {self.r.randint(1, 3)}:",
                        [Block(f"{stop} += 1\n{name} = {stop}"), *body],
                        [("else:", self.block(depth + 1, 1, 1))] * (self.r.random() < 0.4),
                    ),
                ]
            return [
                Block(
                    f"for {name} in {self.ints_of()}:",
                    body,
                    [("else:", self.block(depth + 1, 1, 1))] * (self.r.random() < 0.3),
                )
            ]

        made = self.scoped(write)
        self.loops -= 1
        return made[0] if len(made) == 1 else Block("if True:", made)

    def attempt(self, depth):
        self.tries += 1
        body = self.block(depth + 1)
        if self.r.random() < 0.5:
            body.append(Block(f"raise {self.error()}"))
        self.tries -= 1
        tails = []
        for kinds in self.r.sample(
            [
                "(ValueError, IndexError)",
                "Exception",
                "Fault",
                "(TypeError, KeyError)",
                "ZeroDivisionError",
                "Deep",
                "LookupError",
                "AttributeError",
            ],
            self.r.choice((1, 1, 2)),
        ):
            e = self.name("e")
            handler = [
                Block(f"log.append((type({e}).__name__, {e}.args, type({e}.__context__).__name__))"),
                *self.block(depth + 1, 0, 1),
            ]
            if self.r.random() < 0.3:
                handler.append(
                    Block(
                        self.pick(
                            [
                                "raise",
                                f"raise Fault(1) from {e}",
                                "raise Deep(2)",
                                f"raise {e}.with_traceback(None)",
                                f"{e}.add_note('note')",
                            ]
                        )
                    )
                )
            tails.append((f"except {kinds} as {e}:", handler))
        if self.r.random() < 0.25:
            tails.append(("else:", self.block(depth + 1, 1, 1)))
        if self.r.random() < 0.4:
            tails.append(("finally:", self.block(depth + 1, 1, 2)))
        return Block("try:", body, tails)

    def function(self, depth):
        name, r = self.name("h"), self.r
        decorator = self.pick(
            ["", "", "", "@traced\n", f"@scaled({r.randint(1, 3)})\n", "@functools.lru_cache\n", "@functools.partial\n"]
        )
        params = self.pick([f"a, b={self.int(0)}", f"a, *rest, k={self.int(0)}", "a, /, b=1, **more", "a, b=(1, 2)"])
        count = self.name("c")
        kind = r.randrange(4)
        if kind == 0:
            head = f"{count} = {r.randint(0, 3)}\n{decorator}def {name}({params}):\n    nonlocal_ = {count}\n    def inner(v):\n        nonlocal nonlocal_\n        nonlocal_ += v\n        return nonlocal_\n    inner(1)\n    return inner(a)"
        elif kind == 1:
            head = f"{decorator}def {name}({params}):\n    return a * {self.int(0)} + {self.int(1)}"
        elif kind == 2:
            head = f"{decorator}def {name}({params}):\n    try:\n        return a // {self.int(0)}\n    except ZeroDivisionError as e:\n        log.append(str(e))\n        raise ValueError(a) from e\n    finally:\n        log.append('{name}')"
        else:
            head = f"{name} = functools.partial(lambda a, b, c=1: a * b + c, {self.int(0)})"
        self.calls.append(name)
        return Block(head)

    def guarded(self, block):
        """Mostly so that what follows is reached."""
        if block.head.startswith("try:") or self.r.random() < 0.3:
            return block
        return Block(
            "try:", [block], [("except Exception as error:", [Block("log.append((type(error).__name__, str(error)))")])]
        )

    def program(self):
        body = [self.guarded(self.statement(1)) for _ in range(self.r.randint(4, 10))]
        end = "return " + ", ".join(
            [self.tensor(), self.int(1), self.pick(self.lists), self.pick(self.dicts), self.string()]
        )
        return [*body, Block(end)]


def text(blocks):
    lines = [line for b in blocks for line in b.lines(1)] or ["    pass"]
    return PRELUDE + "\n\ndef f(x, n, items, table, log):\n    global LEVEL\n" + "\n".join(lines) + "\n"


def write(seed):
    return Writer(seed).program()
