"""Random expressions over integers, lists, dicts, points, functions and small tensors."""

import random


class Expressions:
    """Text of random expressions of each type over the names that are bound so far."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.n, self.loops, self.tries = 0, 0, 0
        self.ints, self.lists, self.dicts, self.points, self.calls, self.tensors, self.sets = (
            ["n"],
            ["items"],
            ["table"],
            [],
            [],
            ["x"],
            [],
        )

    def pick(self, options):
        return self.r.choice(options)

    def name(self, kind):
        self.n += 1
        return f"{kind}{self.n}"

    def int(self, d=2):
        if d <= 0 or self.r.random() < 0.3:
            return self.pick([*self.ints, str(self.r.randint(-3, 6))])
        a, b = self.int(d - 1), self.int(d - 1)
        options = [
            f"({a} {self.pick('+-*')} {b})",
            f"({a} {self.pick(['//', '%'])} {b})",
            f"len({self.list(0)})",
            f"({a} if {self.cond(d - 1)} else {b})",
            f"sum({self.ints_of()})",
            f"max({a}, {b}, key=lambda v: -v)",
            f"min({a}, {b})",
            f"abs({a})",
            f"({a} ** 2)",
            f"({a} & {b})",
            f"({a} << 1)",
            f"divmod({a}, 3)[1]",
            f"next(iter({self.ints_of()}), {b})",
            f"functools.reduce(operator.add, {self.ints_of()}, {a})",
            f"(lambda v, w={a}: v + w)({b})",
            f"int({self.cond(0)})",
            f"fib({self.r.randint(0, 5)})",
            f"{self.dict(0)}.get({self.key()}, {a})",
            f"len(str({a}))",
            f"hash({a}) % 7",
            f"sum(1 for v in {self.ints_of()} if v > {a})",
            f"[*range(5)][{a} % 5]",
            f"int('{self.r.randint(0, 30)}')",
            f"round({a} / 2)",
            f"operator.itemgetter(0)([{a}])",
            f"x.shape[{self.r.choice((0, -1))}]",
            "LEVEL",
        ]
        if self.points:
            p = self.pick(self.points)
            options += [
                f"{p}.a",
                f"{p}.total",
                f"{p}({a}, z={b})",
                f"{p}[0]",
                f"getattr({p}, 'd', {a})",
                f"{p}.twice({a})",
                f"({p} + {a}).a",
                f"len({p})",
                f"type({p}).count",
            ] * 2
        if self.calls:
            c = self.pick(self.calls)
            options += [f"{c}({a})"] * 4
        return self.pick(options)

    def cond(self, d=1):
        a, b = self.int(d - 1), self.int(d - 1)
        options = [
            f"{a} {self.pick(['<', '>', '==', '!=', '<=', '>='])} {b}",
            f"{a} in {self.list(0)}",
            f"not {self.list(0)}",
            f"{a} < {b} < {self.int(0)}",
            f"{self.list(0)} and {a}",
            f"{a} or {b}",
            f"isinstance({self.list(0)}, (tuple, list))",
            f"any(v == {a} for v in {self.ints_of()})",
            f"all({self.ints_of()})",
            f"{self.key()} in {self.dict(0)}",
            f"{self.list(0)} is {self.list(0)}",
            f"(w := {a}) > {b}",
            f"callable({self.pick([*self.calls, 'n'])})",
            f"x.dim() == {self.r.randint(1, 3)}",
        ]
        if self.r.random() < 0.15:
            options = [f"{self.tensor(0)}.sum() > {self.r.randint(-4, 4)}"]
        if self.points:
            options += [
                f"{self.pick(self.points)} == Point({a})",
                f"{a} in {self.pick(self.points)}",
                f"bool({self.pick(self.points)})",
                f"{self.pick(self.points)} < Point({a})",
                f"hasattr({self.pick(self.points)}, 'd')",
            ]
        return self.pick(options)

    def key(self):
        return self.pick(["1", "'a'", "'b'", "0", "(1, 2)", "None"])

    def ints_of(self):
        return self.pick(
            [
                f"[v for v in {self.list(0)} if type(v) is int]",
                f"(v for v in [*{self.list(0)}] if type(v) is int)",
                f"range({self.r.randint(0, 4)})",
                f"[{self.int(0)}, {self.int(0)}]",
                f"map(abs, [{self.int(0)}, {self.int(0)}])",
                f"Count({self.r.randint(0, 3)})",
                f"{{{self.int(0)}, {self.int(0)}}}",
                f"filter(None, [{self.int(0)}, 0])",
                f"itertools.chain([1], [{self.int(0)}])",
                f"numbers({self.r.randint(0, 3)}, log)",
                f"itertools.islice(itertools.count({self.int(0)}), 3)",
                f"sorted({{3, 1, {self.int(0)}}}, key=lambda v: -v)",
            ]
        )

    def list(self, d=1):
        if d <= 0 or self.r.random() < 0.3:
            return self.pick(self.lists)
        a, b, q = self.int(0), self.int(0), self.pick(self.lists)
        return self.pick(
            [
                f"[{a}, {b}, 'q']",
                f"[v for v in {q} if v != {a}]",
                f"list(range({self.r.randint(-1, 4)}))",
                f"sorted({self.dict(0)}, key=str)",
                f"{q}[{a}:{b}]",
                f"[*{q}, *{q}[:1]]",
                f"list(zip({q}, range(3)))",
                f"list(map(lambda v, s={a}: (v, s), {q}))",
                f"[(i, j) for i in range(2) for j in {q}[:2] if i]",
                f"list(reversed({q}))",
                f"{q} + [{a}]",
                f"{q} * 2",
                f"list(itertools.accumulate({self.ints_of()}))",
                f"[list(g) for _, g in itertools.groupby({self.ints_of()}, key=lambda v: v % 2)]",
                f"list(enumerate({q}, {a}))",
                f"list(delegating({self.r.randint(0, 2)}, log))",
                f"list(itertools.product('ab', {q}[:2]))",
                f"list({self.dict(0)}.items())",
                f"[y := {a}, y + 1]",
                f"list(itertools.zip_longest({q}, [1, 2], fillvalue={a}))",
                f"sorted([Point({a}), Third({b})])",
                f"[f'{{v!r:>4}}' for v in {q}]",
                f"'a-b-{self.r.randint(0, 9)}'.split('-')",
                f"list(itertools.takewhile(lambda v: v != {a}, {q}))",
                f"list(itertools.pairwise({q}))",
                f"[[0] * 2 for _ in range({self.r.randint(0, 2)})]",
                f"list(itertools.combinations({q}[:3], 2))",
                f"[{self.cond(0)} for _ in range(2)]",
                f"list(collections.deque({q}, maxlen=2))",
                f"list(dict.fromkeys({self.ints_of()}))",
                f"list(itertools.starmap(operator.mul, [({a}, {b})]))",
            ]
        )

    def dict(self, d=1):
        if d <= 0 or self.r.random() < 0.3:
            return self.pick(self.dicts)
        a, q, t = self.int(0), self.pick(self.lists), self.pick(self.dicts)
        return self.pick(
            [
                f"{{1: {a}, 'a': {self.int(0)}}}",
                f"{{k: v for k, v in enumerate({q}[:3])}}",
                f"{{**{t}, 'b': {a}}}",
                f"dict.fromkeys('ab', {a})",
                f"{t} | {{'c': {a}}}",
                f"dict(a={a}, b=2)",
                f"collections.defaultdict(int, {t})",
                "collections.Counter('abca')",
                f"dict(zip('abc', {q}))",
                f"collections.OrderedDict({t})",
                f"{{str(k): v for k, v in {t}.items()}}",
                f"{t}.copy()",
                f"collections.Counter({self.ints_of()})",
            ]
        )

    def string(self):
        a, q = self.int(1), self.pick(self.lists)
        return self.pick(
            [
                f'f"{{{self.int(0)}:>3}}|{{{q}!r}}"',
                f"'-'.join(str(v) for v in {q})",
                f"'%s:%d' % ({self.pick(self.dicts)}, {a})",
                f"'{{0}} {{k}}'.format({a}, k={q})",
                f"repr({self.pick(self.dicts)})",
                f"str({a}).zfill(4)",
                f"'abc'[{self.int(0)}:]",
                f"'ab' * ({a} % 3)",
                f'f"{{{a}=}}"',
                *([f"repr({self.pick(self.points)})", f'f"{{{self.pick(self.points)}!r:>14}}"'] if self.points else []),
            ]
        )

    def tensor(self, d=2):
        if d <= 0 or self.r.random() < 0.25:
            return self.pick(self.tensors)
        a, b = self.tensor(d - 1), self.tensor(d - 1)
        return self.pick(
            [
                f"({a} {self.pick('+-*')} {b})",
                f"({a} * {self.int(1)})",
                f"torch.relu({a})",
                f"torch.sin({a})",
                f"torch.stack([{a}, {b}]).amax(0)",
                f"({a} if {self.cond(1)} else {b})",
                f"{a}.clone().add_({self.int(0)})",
                f"torch.where({a} > 0, {a}, {b})",
                f"sum([{a}, {b}])",
                f"-{a}",
                f"{a}.reshape(-1).reshape(x.shape)",
                f"torch.cat([{a}, {b}])[: x.shape[0]]",
                f"functools.reduce(torch.add, [{a}, {b}])",
                f"(lambda t: t * 2)({a})",
                f"{a}.to(torch.float64).to({a}.dtype)",
                f"{a}.masked_fill({b} > 1, 0)",
            ]
        )
