"""Random worlds: things that hang off each other, a function that reads them along random paths, and changes between its calls."""

import random
import re
from dataclasses import dataclass
from pathlib import Path

from world_process import QUERIES, STATES
from world_things import Things
from world_values import ANY_READS, CHANGES, NAMES, READS, TENSORS, WRITES

PRELUDE = re.split(r"\n\n\n(?=\S)", Path(__file__).with_name("world_prelude.py").read_text())


@dataclass
class Program:
    setup: list  # blocks of text that make the world
    head: list  # the line that defines f
    body: list  # blocks of the body of f
    closure: list  # things that f reads as variables of the function around it
    tail: list  # after f
    arguments: list  # of each call, evaluated in the world
    steps: list  # of lists of changes; "!..." is a state of the process
    target: str = "f"  # what is compiled
    backend: str = "eager"
    dynamic: object = None

    def function(self):
        lines = [*self.head, "    acc = []"]
        for block in self.body:
            lines += ["    " + line for line in block.splitlines()]
        text = "\n".join([*lines, "    return acc, x"])
        if not self.closure:
            return text
        inner = "\n".join("    " + line for line in text.splitlines())
        return f"def outer({', '.join('c_' + g for g in self.closure)}):\n{inner}\n    return f\n\n\nf = outer({', '.join(self.closure)})"

    def source(self):
        own = "\n\n".join([*self.setup, self.function(), *self.tail])
        return (
            "\n\n".join([*prelude_for(own + "".join(t for s in self.steps for t in s) + "".join(self.arguments)), own])
            + "\n"
        )


def prelude_for(text):
    """The imports and those definitions that the text uses."""
    chosen, names = (
        set(),
        {
            re.search(r"(?:def|class) (\w+)|^(\w+) =", b, re.M).group(1) or "K": i
            for i, b in enumerate(PRELUDE[1:], 1)
            if re.search(r"^(?:@.*\n)*(def|class) |^K = ", b)
        },
    )
    todo = [text]
    while todo:
        words = set(re.findall(r"\w+", todo.pop()))
        for name, i in names.items():
            if name in words and i not in chosen:
                chosen.add(i)
                todo.append(PRELUDE[i])
    head = PRELUDE[0][PRELUDE[0].index("import") :]
    return [head, *(PRELUDE[i] for i in sorted(chosen))]


class Writer(Things):
    # ---- the function ----

    def read(self):
        if self.r.random() < 0.12:
            return self.pick(QUERIES)
        p = self.place()
        return self.fill(self.pick(ANY_READS if self.r.random() < 0.12 else READS[p.node.kind]), p)

    def statement(self):
        r = self.r
        e = self.read()
        if r.random() < 0.18:
            p = self.place()
            if p.node.kind in WRITES and (r.random() < 0.8 or not p.set):
                text = self.fill(self.pick(WRITES[p.node.kind]), p, e)
            elif p.set and "." + p.path != p.path and not re.fullmatch(r"g\d+", p.path):
                text = p.set.format(value=e)
            else:
                text = f"acc.append({e})"
        else:
            choice = r.randrange(12)
            text = (
                f"x = mix(x, {e})" if choice < 3 else f"acc.append({e})" if choice < 7 else f"x = x + 1 if {e} else x - 1" if choice == 7 else f"x = x + ({e})" if choice == 8 else f"if {e}:\n    x = x * 2\nelse:\n    acc.append(3)" if choice == 9
                else f"for y in {e}:\n    x = mix(x, y)" if choice == 10 else f"y = {e}\nx = mix(x, y)\nacc.append((y, [y]))"
            )  # fmt: skip
        if r.random() < 0.8:
            inner = "\n".join("    " + line for line in text.splitlines())
            text = f"try:\n{inner}\nexcept Exception as error:\n    acc.append((type(error).__name__, str(error)))\n    x = x + 1"
        return text

    # ---- changes ----

    def fresh(self, p):
        """An expression like the one that the place was made of, with other leaves."""
        if p.seed is None or p.node.kind == "proxy":
            return p.node.expr
        return self.node(p.node.kind, random.Random(p.seed), self.r, p.depth).expr

    def change(self):
        r = self.r
        if r.random() < 0.06:
            return ["!" + self.pick(list(STATES))]
        if self.classes and r.random() < 0.16:
            cls = self.pick(self.classes)
            n, e = self.feature(cls)
            choice = r.randrange(10)
            if choice < 6:
                return [f"{cls}.{n} = {e}"]
            if choice < 8:
                return [
                    f"del {cls}.{self.pick((n, self.pick(NAMES), '__len__', '__eq__', '__call__', '__getattr__', '__hash__', '__bool__'))}"
                ]
            if choice == 8:
                return [f"{cls}.__bases__ = ({self.pick([*self.classes, 'Marked', 'Quacks', 'Fault'])},)"]
            return [self.pick((f"Marked.register({cls})", f"if type({cls}).__module__ == 'world': type({cls}).{n} = {e}", f"if type({cls}).__module__ == 'world': type({cls}).__instancecheck__ = lambda cls, o: True", f"{self.pick(self.classes)}.__bases__ += ({cls},)", f"collections.abc.Sized.register({cls})",
                               f"for y in list({cls}.__dict__.values()):\n    if isinstance(y, functools.cached_property):\n        y.func = lambda self: {self.leaf()}", f"Plain.__get__ = lambda self, o, cls: {self.leaf()}", f"Reads.__get__ = lambda self, o, cls: {self.leaf()}", "Plain.__set__ = lambda self, o, y: None",
                               "Reads.__set__ = lambda self, o, y: None", "del Both.__set__", "del Reads.__get__", f"{cls}.m.__defaults__ = ({self.leaf()},)", f"{cls}.m.__code__ = (lambda self, n=1, *, k=2: {self.leaf()}).__code__"))]  # fmt: skip
        if r.random() < 0.04:
            return [self.pick((f"K = {self.leaf()}", "mix = lambda x, v: x * 3", f"len = lambda o: {self.leaf()}", "len = 1\ndel len", f"isinstance = lambda o, c: {self.leaf()}", "if 'isinstance' in globals(): del isinstance", "mix.__defaults__ = (1, 2)", "type = lambda o: int", "f.__name__ = 'ab'",
                               f"if f.__kwdefaults__: f.__kwdefaults__['d0'] = {self.leaf()}", f"if f.__defaults__: f.__defaults__ = ({self.leaf()},) * len(f.__defaults__)", f"if f.__closure__: f.__closure__[0].cell_contents = {self.leaf()}", "torch = types.SimpleNamespace(**vars(torch))"))]  # fmt: skip
        p = self.place()
        if CHANGES[p.node.kind] and r.random() < 0.5 or not p.set:
            return [self.fill(self.pick(CHANGES[p.node.kind]), p)] if CHANGES[p.node.kind] else []
        put = lambda value: p.set.format(value=value)
        choice = r.randrange(20)
        if choice < 5:
            return [put(self.fresh(p))]
        if choice < 7:
            return [put(p.node.expr)]  # equal, another object
        if choice == 7:
            return [put(f"copy.copy({p.path})")]
        if choice < 10:
            return [put(self.place(p.node.kind).path)]
        if choice == 10:
            return [p.delete]
        if choice < 16:
            other = self.pick((p.node.expr, self.fresh(p), self.place().node.expr))
            return [
                "\n".join(
                    [f"address = id({p.path})", put("None"), f"again = lambda: {other}", put("at(address, again)")]
                )
            ]
        if choice == 16:
            q = self.place(p.node.kind)
            return [f"{p.path}, {q.path} = {q.path}, {p.path}"] if q.set and "object." not in p.set + q.set else []
        if choice == 17:
            return [put(self.pick((self.leaf(), self.pick(TENSORS), self.any(r, r, 0).expr)))]
        name = f"old{self.dynamic_names}"
        self.dynamic_names += 1
        return [f"{name} = {p.path}", put(self.fresh(p)), "...", put(name)]  # there and back

    def program(self):
        r = self.r
        for _ in range(r.randint(1, 3)):
            self.define_class()
        for _ in range(r.randint(2, 5)):
            self.root()
        roots = [f"g{i}" for i in range(self.roots)]
        ways = {g: r.choice(("global", "global", "argument", "closure", "default", "keyword", "self")) for g in roots}
        body = [self.statement() for _ in range(r.randint(2, 7))]
        method = any(w == "self" for w in ways.values())
        inner = {
            "global": "{}",
            "argument": "a_{}",
            "closure": "c_{}",
            "default": "d_{}",
            "keyword": "k_{}",
            "self": "self.{}",
        }
        names = lambda way: [g for g in roots if ways[g] == way]
        rename = lambda text: re.sub(r"\bg\d+\b", lambda m: inner[ways.get(m[0], "global")].format(m[0]), text)
        body = [rename(b) for b in body]
        parameters = [
            *(["self"] if method else []),
            "x",
            *(f"a_{g}" for g in names("argument")),
            *(f"d_{g}={g}" for g in names("default")),
            *(["*", *(f"k_{g}={g}" for g in names("keyword"))] if names("keyword") else []),
        ]
        head, tail, target = [f"def f({', '.join(parameters)}):"], [], "f"
        if method:
            tail.append("class Holder:\n    f = f")
            tail.append(f"holder = make(Holder, {', '.join(f'{g}={g}' for g in names('self'))})")
            target = "holder.f"
        x = r.choice(
            (
                "torch.ones(2, 3)",
                "torch.ones(2, 3)",
                "torch.arange(6.0).reshape(2, 3)",
                "torch.ones(3, requires_grad=True)",
            )
        )
        steps = []
        while len(steps) < 12:
            change = self.change()
            if "..." in change:
                at = change.index("...")
                steps += [change[:at], change[at + 1 :]]
            elif change and r.random() < 0.15 and steps and not change[0].startswith("!"):
                steps[-1] = steps[-1] + change
            elif change:
                steps.append(change)
        if names("self"):
            steps = [
                [
                    re.sub(
                        r"\bg\d+\b",
                        lambda m: f"holder.{m[0]}" if ways.get(m[0]) == "self" and r.random() < 0.7 else m[0],
                        t,
                    )
                    if not t.startswith("!")
                    else t
                    for t in step
                ]
                for step in steps
            ]
        backend, dynamic = "braze" if r.random() < 0.15 else "eager", r.choice((None, None, None, True, False))
        return Program(
            self.setup, head, body, names("closure"), tail, [x, *names("argument")], steps, target, backend, dynamic
        )


def write(seed):
    return Writer(seed).program()
