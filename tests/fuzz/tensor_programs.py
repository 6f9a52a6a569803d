"""Random programs of tensor operators, as source text.

Sizes come from a few small numbers, so that they coincide: different axes with equal extents, merged axes with equal products,
dimensions of size 1 beside broadcast ones. Each statement binds one new name; a program returns some of them. Inputs are
multiples of 1/8, so that sums and products of them are exact in float32 and what follows a comparison is the same everywhere.
"""

import random

import torch

SIZES = (1, 2, 3, 4, 8, 16)
LIMIT = 1 << 15  # elements of a tensor


class Value:
    """A name, its shape, its kind ("float", "int", "bool"), whether its values are exact, and what they are below in magnitude."""

    def __init__(self, name, shape, kind="float", exact=True, bound=4.0):
        self.name, self.shape, self.kind, self.exact, self.bound = name, tuple(shape), kind, exact, bound


class Program:
    """`inputs`: (name, shape, kind); `lines`: (name, names that it reads, text); `results`: names."""

    def __init__(self, inputs, lines, results):
        self.inputs, self.lines, self.results = inputs, lines, results

    def needed(self):
        wanted, lines = set(self.results), []
        for name, reads, text in reversed(self.lines):
            if name in wanted:
                wanted |= set(reads)
                lines.append((name, reads, text))
        return Program([i for i in self.inputs if i[0] in wanted], lines[::-1], self.results)

    def source(self):
        body = [f"    {text}" for _, _, text in self.lines]
        arguments = ", ".join(f"{name}" for name, _, _ in self.inputs)
        shapes = "".join(f"# {name}: {kind} {list(shape)}\n" for name, shape, kind in self.inputs)
        return f"{shapes}def f({arguments}):\n" + "\n".join(body) + f"\n    return {', '.join(self.results)},\n"


class Writer:
    def __init__(self, seed, steps=None):
        self.r = random.Random(seed)
        self.values, self.lines, self.inputs = [], [], []
        # Few sizes in one program, or all.
        self.sizes = self.r.sample(SIZES, self.r.choice((1, 2, 2, 3, 6)))
        for _ in range(self.r.randint(1, 3)):
            self.input(self.shape())
        for _ in range(steps or self.r.randint(2, 9)):
            self.step()

    def program(self):
        computed = [v.name for v in self.values if v.name not in {i[0] for i in self.inputs}]
        if not computed:
            self.emit(f"torch.neg({self.values[0].name})", self.values[0].shape, self.values[:1])
            computed = [self.values[-1].name]
        results = self.r.sample(computed, min(len(computed), self.r.randint(1, 3)))
        if computed[-1] not in results:
            results.append(computed[-1])
        return Program(self.inputs, self.lines, results).needed()

    # ---- making names ----

    def shape(self):
        rank = self.r.choice((1, 2, 2, 3, 3, 4, 4))
        shape = [self.r.choice(self.sizes) for _ in range(rank)]
        while volume(shape) > LIMIT:
            shape[shape.index(max(shape))] = 2
        return tuple(shape)

    def input(self, shape, kind="float"):
        v = Value(f"a{len(self.inputs)}", shape, kind)
        self.inputs.append((v.name, v.shape, kind))
        self.values.append(v)
        return v

    def emit(self, text, shape, reads, kind="float", exact=False, bound=None):
        if volume(shape) > LIMIT:
            return None
        v = Value(
            f"t{len(self.lines)}",
            shape,
            kind,
            exact,
            bound if bound is not None else max([r.bound for r in reads], default=4.0),
        )
        if v.bound > 1e4:  # keeps later values in a range where float32 tells them apart
            text, v.bound, v.exact = f"torch.tanh({text})" if kind == "float" else text, 1.0, False
        self.lines.append((v.name, [r.name for r in reads], f"{v.name} = {text}"))
        self.values.append(v)
        return v

    # ---- choosing operands ----

    def pick(self, kind="float", rank=None, test=None):
        found = [
            v
            for v in self.values
            if v.kind == kind and (rank is None or len(v.shape) == rank) and (test is None or test(v))
        ]
        if not found:
            return None
        return found[-1] if self.r.random() < 0.4 else self.r.choice(found)

    def broadcastable(self, v):
        """Another value that broadcasts with v, an input made for it if there is none."""
        found = [w for w in self.values if w.kind == "float" and fits(v.shape, w.shape)]
        if found and self.r.random() < 0.8:
            return self.r.choice(found)
        shape = [s if self.r.random() < 0.7 else 1 for s in v.shape[self.r.randint(0, len(v.shape)) :]]
        return self.input(tuple(shape)) if len(self.inputs) < 6 else v

    def dims(self, v, least=1):
        return sorted(self.r.sample(range(len(v.shape)), self.r.randint(least, len(v.shape))))

    def dim(self, v):
        d = self.r.randrange(len(v.shape))
        return d, self.r.choice((d, d - len(v.shape)))

    def index(self, shape, below):
        """An input of integers in [0, below), of any shape."""
        v = self.input(shape, f"index {below}")
        self.values.remove(v)
        return v

    # ---- statements ----

    def step(self):
        v = self.pick()
        getattr(self, self.r.choice(STATEMENTS if v.shape else ("unary", "exact_unary", "binary")))(v)

    def unary(self, v):
        name = self.r.choice(
            ("tanh", "sigmoid", "sin", "cos", "exp", "erf", "sqrt", "log1p", "silu", "gelu", "softplus", "reciprocal")
        )
        x = v.name
        if name == "exp":
            x = f"torch.tanh({x})"
        if name in ("sqrt", "log1p", "reciprocal"):
            x = f"({x}.abs() + 1)"
        function = f"F.{name}" if name in ("silu", "gelu", "softplus") else f"torch.{name}"
        self.emit(
            f"{function}({x})", v.shape, [v], bound=max(4.0, v.bound) if name in ("silu", "gelu", "softplus") else 4.0
        )

    def exact_unary(self, v):
        self.emit(
            self.r.choice(
                (
                    "torch.relu({})",
                    "torch.neg({})",
                    "torch.abs({})",
                    "{}.clone()",
                    "{} * 2",
                    "{} - 1",
                    "{}.clamp(-2, 3)",
                    "{}.contiguous()",
                )
            ).format(v.name),
            v.shape,
            [v],
            exact=v.exact,
            bound=2 * v.bound + 1,
        )

    def binary(self, v):
        w = self.broadcastable(v)
        op = self.r.choice(("+", "-", "*", "max", "min", "/"))
        shape = torch.broadcast_shapes(v.shape, w.shape)
        a, b = (v, w) if self.r.random() < 0.5 else (w, v)
        if op in ("max", "min"):
            self.emit(f"torch.{op}imum({a.name}, {b.name})", shape, [a, b], exact=a.exact and b.exact)
        elif op == "/":
            self.emit(f"{a.name} / ({b.name}.abs() + 1)", shape, [a, b], bound=a.bound)
        else:
            bound = a.bound * b.bound if op == "*" else a.bound + b.bound
            self.emit(f"{a.name} {op} {b.name}", shape, [a, b], exact=a.exact and b.exact and bound < 1e3, bound=bound)

    def reduce(self, v):
        dims, keep = self.dims(v), self.r.random() < 0.4
        name = self.r.choice(("sum", "sum", "mean", "mean", "amax", "amin", "var", "logsumexp", "norm"))
        n = volume(v.shape[d] for d in dims)
        if name == "var" and n == 1:
            name = "mean"
        shape = reduced(v.shape, dims, keep)
        x = f"(torch.tanh({v.name}) + 2)" if name == "norm" else v.name
        text = (
            f"torch.linalg.vector_norm({x}, dim={dims}, keepdim={keep})"
            if name == "norm"
            else f"{x}.{name}({dims}, keepdim={keep})"
        )
        exact = v.exact and name in ("sum", "amax", "amin") and v.bound * n < 1e3
        self.emit(
            text,
            shape,
            [v],
            exact=exact,
            bound=v.bound * n if name in ("sum", "norm") else v.bound**2 if name == "var" else v.bound + 8,
        )

    def reduce_all(self, v):
        name = self.r.choice(("sum", "mean", "amax"))
        n = volume(v.shape)
        self.emit(
            f"{v.name}.{name}()",
            (),
            [v],
            exact=v.exact and name != "mean" and v.bound * n < 1e3,
            bound=v.bound * (n if name == "sum" else 1),
        )

    def along(self, v):
        _, d = self.dim(v)
        name = self.r.choice(
            ("softmax", "log_softmax", "cumsum", "flip", "roll", "sort", "argmax", "argmin", "cumprod")
        )
        if name in ("argmax", "argmin", "sort") and not v.exact:
            name = "softmax"
        if name in ("argmax", "argmin"):
            keep = self.r.random() < 0.5
            text = f"{v.name}.{name}({d}, keepdim={keep}).to(torch.float32)"
            self.emit(text, reduced(v.shape, [d % len(v.shape)], keep), [v], exact=True, bound=16)
        elif name == "sort":
            self.emit(f"{v.name}.sort({d}).values", v.shape, [v], exact=True)
        elif name == "flip":
            self.emit(f"{v.name}.flip({d})", v.shape, [v], exact=v.exact)
        elif name == "roll":
            self.emit(f"{v.name}.roll({self.r.randint(-2, 3)}, {d})", v.shape, [v], exact=v.exact)
        elif name == "cumprod":
            self.emit(f"torch.tanh({v.name}).cumprod({d})", v.shape, [v], bound=1)
        else:
            self.emit(f"{v.name}.{name}({d})", v.shape, [v], bound=v.bound * 16)

    def view(self, v):
        r, n = self.r, len(v.shape)
        choice = r.randrange(8)
        if choice == 0:
            order = r.sample(range(n), n)
            self.emit(f"{v.name}.permute({order})", [v.shape[d] for d in order], [v], exact=v.exact)
        elif choice == 1:
            shape = refactored(r, v.shape)
            self.emit(f"{v.name}.reshape({list(shape)})", shape, [v], exact=v.exact)
        elif choice == 2:
            d = r.randint(0, n)
            self.emit(f"{v.name}.unsqueeze({d})", v.shape[:d] + (1,) + v.shape[d:], [v], exact=v.exact)
        elif choice == 3:
            self.emit(f"{v.name}.squeeze()", [s for s in v.shape if s != 1], [v], exact=v.exact)
        elif choice == 4:
            shape = [s if s != 1 else r.choice(self.sizes) for s in v.shape]
            self.emit(f"{v.name}.expand({shape})", shape, [v], exact=v.exact)
        elif choice == 5:
            d, named = self.dim(v)
            start = r.randrange(v.shape[d])
            stop = r.randint(start + 1, v.shape[d])
            step = r.choice((1, 1, 2))
            index = ", ".join(f"{start}:{stop}:{step}" if k == d else ":" for k in range(n))
            self.emit(
                f"{v.name}[{index}]",
                [len(range(start, stop, step)) if k == d else s for k, s in enumerate(v.shape)],
                [v],
                exact=v.exact,
            )
        elif choice == 6:
            d, _ = self.dim(v)
            self.emit(
                f"{v.name}.select({d}, {r.randrange(v.shape[d])})", v.shape[:d] + v.shape[d + 1 :], [v], exact=v.exact
            )
        elif n >= 2:
            self.emit(f"{v.name}.transpose(0, -1)", v.shape[-1:] + v.shape[1:-1] + v.shape[:1], [v], exact=v.exact)

    def join(self, v):
        d, named = self.dim(v)
        found = [
            w
            for w in self.values
            if w.kind == "float"
            and len(w.shape) == len(v.shape)
            and all(a == b or k == d for k, (a, b) in enumerate(zip(v.shape, w.shape)))
        ]
        parts = [v] + [self.r.choice(found) for _ in range(self.r.randint(1, 2))]
        names = ", ".join(p.name for p in parts)
        exact = all(p.exact for p in parts)
        if self.r.random() < 0.3 and all(p.shape == v.shape for p in parts):
            at = self.r.randint(0, len(v.shape))
            self.emit(f"torch.stack([{names}], {at})", v.shape[:at] + (len(parts),) + v.shape[at:], parts, exact=exact)
        else:
            shape = [sum(p.shape[d] for p in parts) if k == d else s for k, s in enumerate(v.shape)]
            self.emit(f"torch.cat([{names}], {named})", shape, parts, exact=exact)

    def gather(self, v):
        d, named = self.dim(v)
        choice, below = self.r.randrange(4), v.shape[d]
        if choice == 0:
            i = self.index((self.r.choice(self.sizes),), below)
            self.emit(
                f"{v.name}.index_select({named}, {i.name})",
                v.shape[:d] + i.shape + v.shape[d + 1 :],
                [v, i],
                exact=v.exact,
            )
        elif choice == 1:
            shape = tuple(
                s if k == d else self.r.choice([x for x in self.sizes if x <= s] or [s]) for k, s in enumerate(v.shape)
            )
            i = self.index(shape, below)
            self.emit(f"{v.name}.gather({named}, {i.name})", shape, [v, i], exact=v.exact)
        elif choice == 2:
            i, j = self.index(self.shape()[:2], v.shape[0]), None
            if len(v.shape) > 1 and self.r.random() < 0.5:
                j = self.index(i.shape[-1:], v.shape[1])
            used = 2 if j else 1
            self.emit(
                f"{v.name}[{i.name}{', ' + j.name if j else ''}]",
                i.shape + v.shape[used:],
                [v, i] + ([j] if j else []),
                exact=v.exact,
            )
        else:
            i = self.index(self.shape()[:1], below)
            keep = [":"] * d + [i.name]
            self.emit(f"{v.name}[{', '.join(keep)}]", v.shape[:d] + i.shape + v.shape[d + 1 :], [v, i], exact=v.exact)

    def scatter(self, v):
        d, named = self.dim(v)
        if self.r.random() < 0.5:
            i = self.index((v.shape[d],), self.r.choice(self.sizes))
            size = int(i_below(self.inputs[-1]))
            shape = [size if k == d else s for k, s in enumerate(v.shape)]
            self.emit(
                f"{v.name}.new_zeros({shape}).index_add({named}, {i.name}, {v.name})",
                shape,
                [v, i],
                exact=v.exact,
                bound=v.bound * v.shape[d],
            )
        else:
            i = self.index(v.shape, v.shape[d])
            self.emit(
                f"{v.name}.new_zeros({list(v.shape)}).scatter_add({named}, {i.name}, {v.name})",
                v.shape,
                [v, i],
                exact=v.exact,
                bound=v.bound * v.shape[d],
            )

    def select(self, v):
        w = self.broadcastable(v)
        if not (v.exact and w.exact):
            return self.exact_unary(v)
        shape = torch.broadcast_shapes(v.shape, w.shape)
        self.emit(
            f"torch.where({v.name} > {w.name}, {v.name}, {w.name} * 2)",
            shape,
            [v, w],
            exact=True,
            bound=2 * max(v.bound, w.bound),
        )

    def matmul(self, v):
        if len(v.shape) < 2:
            return self.unary(v)
        text = self.r.choice(
            (
                "torch.tanh({0}) @ torch.tanh({0}).transpose(-1, -2)",
                "torch.tanh({0}).transpose(-1, -2) @ torch.tanh({0})",
            )
        )
        n = v.shape[-2] if text.endswith("2)") else v.shape[-1]
        self.emit(text.format(v.name), v.shape[:-2] + (n, n), [v], bound=16)

    def norm(self, v):
        if v.shape[-1] < 2:
            return self.unary(v)
        if len(v.shape) >= 3 and self.r.random() < 0.5:
            groups = self.r.choice([g for g in (1, 2, v.shape[1]) if v.shape[1] % g == 0])
            if volume(v.shape[1:]) // groups < 2:
                return self.unary(v)
            self.emit(f"F.group_norm({v.name}, {groups}, eps=0.1)", v.shape, [v], bound=8)
        elif len(v.shape) >= 2 and volume(v.shape) // v.shape[1] > 1 and self.r.random() < 0.4:
            self.emit(f"F.batch_norm({v.name}, None, None, training=True, eps=0.1)", v.shape, [v], bound=8)
        else:
            self.emit(f"F.layer_norm({v.name}, [{v.shape[-1]}], eps=0.1)", v.shape, [v], bound=8)

    def pool(self, v):
        if len(v.shape) != 4:
            return self.view(v)
        h, w = v.shape[2:]
        choice = self.r.randrange(4)
        if choice == 0:
            self.emit(f"F.adaptive_avg_pool2d({v.name}, 1)", v.shape[:2] + (1, 1), [v])
        elif choice == 1 and h > 1 and w > 1:
            self.emit(f"F.avg_pool2d({v.name}, 2)", v.shape[:2] + (h // 2, w // 2), [v])
        elif choice == 2:
            self.emit(f"F.pad({v.name}, (1, 0, 0, 2))", v.shape[:2] + (h + 2, w + 1), [v], exact=v.exact)
        else:
            self.emit(f"F.interpolate({v.name}, scale_factor=2.0)", v.shape[:2] + (2 * h, 2 * w), [v], exact=v.exact)

    def half(self, v):
        dtype = self.r.choice(("bfloat16", "float64", "float16"))
        # Rounded twice, so that what follows starts from the same values in every order of computation.
        if v.exact or dtype == "float64":
            self.emit(
                f"{v.name}.to(torch.{dtype}).to(torch.float32)", v.shape, [v], exact=v.exact and dtype == "float64"
            )

    def write(self, v):
        """In place, on a copy."""
        choice = self.r.randrange(4)
        if choice == 0:
            self.emit(f"{v.name}.clone().mul_(2)", v.shape, [v], exact=v.exact, bound=2 * v.bound)
        elif choice == 1:
            self.emit(
                f"torch.select_scatter({v.name}, {v.name}.select(0, 0) + 1, 0, {self.r.randrange(v.shape[0])})",
                v.shape,
                [v],
                exact=v.exact,
                bound=v.bound + 1,
            )
        elif choice == 2:
            self.emit(f"put({v.name}.clone(), slice(0, None, 2), {v.name}.mean())", v.shape, [v])
        else:
            self.emit(
                f"{v.name}.masked_fill({v.name} > 1, 0.5)" if v.exact else f"{v.name}.clone().add_({v.name})",
                v.shape,
                [v],
                exact=v.exact,
                bound=2 * v.bound,
            )


STATEMENTS = (
    "unary", "exact_unary", "binary", "binary", "binary", "reduce", "reduce", "reduce", "reduce_all", "along", "along", "view", "view", "view",
    "join", "gather", "gather", "scatter", "select", "matmul", "norm", "pool", "half", "write",
)  # fmt: skip


def put(t, index, value):
    t[index] = value
    return t


def volume(shape):
    n = 1
    for s in shape:
        n *= s
    return n


def reduced(shape, dims, keep):
    return [1 if d in dims else s for d, s in enumerate(shape) if keep or d not in dims]


def fits(a, b):
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b)))


def i_below(given):
    return given[2].split()[1]


def refactored(r, shape):
    """Another shape with the same number of elements."""
    primes, n, p = [], volume(shape), 2
    while n > 1:
        while n % p == 0:
            primes.append(p)
            n //= p
        p += 1
    out = [1] * r.randint(1, 4)
    for p in primes:
        out[r.randrange(len(out))] *= p
    return out


def write(seed, steps=None):
    return Writer(seed, steps).program()


def arguments(program, seed, grad=False):
    """Inputs: multiples of 1/8, or indices below a bound; contiguous, transposed in memory, or a window of something larger."""
    g, r = torch.Generator().manual_seed(seed), random.Random(seed)
    out = []
    for _, shape, kind in program.inputs:
        if kind.startswith("index"):
            out.append(torch.randint(0, int(kind.split()[1]), shape, generator=g))
            continue
        t = torch.randint(-32, 33, shape, generator=g).to(torch.float32) / 8
        layout = r.randrange(6)
        if layout == 0 and len(shape) > 1:
            t = t.transpose(0, -1).contiguous().transpose(0, -1)
        elif layout == 1 and shape:
            wide = torch.zeros(*shape[:-1], 2 * shape[-1])
            wide[..., ::2] = t
            t = wide[..., ::2]
        out.append(t.requires_grad_(grad))
    return out
