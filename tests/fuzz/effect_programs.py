"""Random programs of PyTorch as people write it: writes in place, views, sizes that depend on data, dtypes, tensors that share memory.

A program is written while eager runs it: a statement that eager refuses is left out, so that what is drawn need not be known to be
valid. Inputs are multiples of 1/4; a name counts as exact while only exact operators led to it, and only exact ones decide anything.
"""

import random

import torch
import torch.nn.functional as F

SIZES = (1, 2, 3, 4, 6, 8)
LIMIT = 1 << 13  # elements of a tensor


class Input:
    """How an argument is made: `kind` of memory, dtype, the names of its sizes, whether it wants gradients."""

    def __init__(self, name, kind, dtype, dims, grad, of=None):
        self.name, self.kind, self.dtype, self.dims, self.grad, self.of = name, kind, dtype, dims, grad, of

    def __str__(self):
        grad = ", wants gradients" if self.grad else ""
        return f"{self.name}: {self.kind} {self.of or ''} {str(self.dtype)[6:]} [{', '.join(self.dims)}]{grad}"


class Program:
    def __init__(self, seed, inputs, lines, results):
        self.seed, self.inputs, self.lines, self.results = seed, inputs, lines, results

    def source(self):
        body = "".join(f"    {line}\n" for line in self.lines)
        return (
            "".join(f"# {i}\n" for i in self.inputs)
            + f"def f({', '.join(i.name for i in self.inputs)}):\n{body}    return [{', '.join(self.results)}]\n"
        )

    def smaller(self):
        for r in self.results:
            if len(self.results) > 1:
                yield Program(self.seed, self.inputs, self.lines, [x for x in self.results if x != r])
        for i in reversed(range(len(self.lines))):
            yield Program(self.seed, self.inputs, self.lines[:i] + self.lines[i + 1 :], self.results)


def sizes_of(seed, call):
    """The sizes that the names of dimensions stand for in a call: the first two calls have the same."""
    r = random.Random(seed * 7 + (call if call > 1 else 0))
    some = r.sample(SIZES, r.choice((1, 2, 3, 6))) + [0] * (r.random() < 0.05)
    return {d: r.choice(some) for d in "ABCD"} | {"1": 1}


def arguments(program, call):
    """The tensors of a call, in new memory."""
    sizes, made = sizes_of(program.seed, call), {}
    g = torch.Generator().manual_seed(program.seed * 31 + call)
    for i in program.inputs:
        shape = [sizes[d] for d in i.dims]
        if i.of is not None:
            base = made[i.of]
            t = {
                "same": lambda: base,
                "view": lambda: base.view(-1),
                "part": lambda: base[:1],
                "turned": lambda: base.t() if base.dim() < 3 else base.transpose(0, 1),
            }[i.kind]()
        else:
            t = new(i, shape, g)
        made[i.name] = t
    for i in program.inputs:
        if i.grad:
            made[i.name].requires_grad_()
    return [made[i.name] for i in program.inputs]


def new(i, shape, g):
    def fill(shape):
        device = torch.get_default_device()
        if i.dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=g, device="cpu").bool().to(device)
        values = torch.randint(-8, 9, shape, generator=g, device="cpu").to(device)
        return values.to(i.dtype) / 4 if i.dtype.is_floating_point else values.abs().remainder(4).to(i.dtype)

    if i.kind == "plain":
        return fill(shape)
    if i.kind == "transposed":
        return fill(shape[::-1]).permute(tuple(reversed(range(len(shape)))))
    if i.kind == "strided":
        return fill([*shape[:-1], shape[-1] * 2])[..., ::2] if shape else fill(shape)
    if i.kind == "expanded":
        return fill([1, *shape[1:]]).expand(shape) if shape else fill(shape)
    if i.kind == "channels last":
        return fill(shape).contiguous(memory_format=torch.channels_last) if len(shape) == 4 else fill(shape)
    if i.kind == "result":
        return fill(shape).requires_grad_() * 1 if i.dtype.is_floating_point else fill(shape)
    if i.kind == "offset":
        return fill([n + 1 for n in shape])[tuple(slice(1, None) for _ in shape)]
    raise ValueError(i.kind)


class Writer:
    def __init__(self, seed, statements=None):
        self.seed, self.r = seed, random.Random(seed)
        self.lines, self.inputs = [], []
        self.exact, self.made = {}, []
        some = self.r.sample("ABCD", self.r.choice((1, 2, 3)))
        for k in range(self.r.randint(1, 3)):
            name = f"a{k}"
            dtype = self.r.choices(
                (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.int32, torch.uint8),
                (12, 1, 1, 4, 2, 1, 1),
            )[0]
            if self.inputs and self.r.random() < 0.15:
                of = self.r.choice(self.inputs)
                if not of.grad and of.of is None:
                    self.inputs.append(
                        Input(
                            name, self.r.choice(("same", "view", "part", "turned")), of.dtype, of.dims, False, of.name
                        )
                    )
                    continue
            kind = self.r.choices(
                ("plain", "transposed", "strided", "offset", "expanded", "channels last", "result"),
                (16, 4, 2, 2, 1, 1, 1),
            )[0]
            dims = [
                self.r.choice([*some, *some, "1"] if self.r.random() < 0.2 else some)
                for _ in range(self.r.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))
            ]
            grad = dtype.is_floating_point and kind == "plain" and self.r.random() < 0.4
            self.inputs.append(Input(name, kind, dtype, dims, grad))
        start = Program(seed, self.inputs, [], [])
        self.scope = {"torch": torch, "F": F}
        for i in self.inputs:
            self.exact[i.name] = True
        with_arguments = dict(zip(self.exact, arguments_or_none(start) or []))
        self.valid = bool(with_arguments)
        self.scope |= with_arguments
        wanted, tries = statements or self.r.randint(2, 9), 0
        while self.valid and len(self.lines) < wanted and tries < 60:
            tries += 1
            self.statement()

    def program(self):
        results = self.r.sample(self.made, min(len(self.made), self.r.randint(1, 3))) if self.made else []
        if self.made and self.made[-1] not in results:
            results.append(self.made[-1])
        if self.inputs and self.r.random() < 0.1:
            results.append(self.inputs[0].name)
        return Program(self.seed, self.inputs, self.lines, results)

    # ---- drawing ----

    def names(self, where=lambda t: True):
        return [n for n in self.exact if isinstance(self.scope.get(n), torch.Tensor) and where(self.scope[n])]

    def pick(self, where=lambda t: True):
        found = self.names(where)
        if not found:
            raise LookupError
        return self.r.choice(found[-4:] if self.r.random() < 0.6 else found)

    def t(self, name):
        return self.scope[name]

    def like(self, name):
        """A tensor that goes well with that one, or a number."""
        if self.r.random() < 0.3:
            return self.r.choice(("2", "0.5", "-1", "3", "True"))
        shape = self.t(name).shape
        return self.pick(lambda t: broadcasts(t.shape, shape)) if self.r.random() < 0.9 else self.pick()

    def dim(self, name):
        n = self.t(name).dim()
        return str(self.r.randint(-n, n - 1)) if n else "0"

    def mask(self, name):
        exact = self.r.choice((f"{name} > 0", f"{name} == 1", f"{name} != 0", f"{name} < 0.5"))
        masks = [
            n for n in self.names(lambda t: t.dtype == torch.bool and t.shape == self.t(name).shape) if self.exact[n]
        ]
        if masks and self.r.random() < 0.5:
            return self.r.choice(masks)
        if not self.exact[name]:
            raise LookupError
        return exact

    def index(self, size):
        """Text of a vector of valid indices."""
        found = self.names(
            lambda t: t.dtype == torch.int64 and t.dim() > 0 and 0 < t.numel() and t.min() >= 0 and t.max() < size
        )
        if found and self.r.random() < 0.5:
            return self.r.choice(found)
        return (
            f"torch.tensor({[self.r.randrange(size) for _ in range(self.r.randint(1, 4))]})"
            if size
            else "torch.tensor([], dtype=torch.int64)"
        )

    def position(self, name):
        """Text of a subscript of plain positions."""
        parts = []
        for n in self.t(name).shape:
            parts.append(self.r.choice((":", ":", "0", "-1", "1:", ":-1", "::2", f"{self.r.randint(0, n)}:", "None")))
            if self.r.random() < 0.3:
                break
        if self.r.random() < 0.1:
            parts.insert(0, "...")
        return ", ".join(parts) or "..."

    # ---- statements ----

    def statement(self):
        kinds = (
            (self.unary, 6), (self.binary, 8), (self.reduce, 4), (self.view, 8), (self.select, 5), (self.by_data, 4), (self.write, 8),
            (self.write_part, 6), (self.cast, 2), (self.make, 3), (self.join, 3), (self.product, 2), (self.layer, 3), (self.python, 3), (self.gradients, 2),
        )  # fmt: skip
        kind = self.r.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        try:
            text, reads, exact = kind()
        except (LookupError, IndexError, ValueError):
            return
        binds = not text.startswith("!")
        text = text.removeprefix("!")
        name = f"v{len(self.made)}"
        line = f"{name} = {text}" if binds else text
        saved = dict(self.scope)
        try:
            exec(line, self.scope)
        except Exception:
            self.scope = saved
            return
        value = self.scope.get(name) if binds else None
        if binds:
            if not isinstance(value, torch.Tensor) or value.numel() > LIMIT or value.layout != torch.strided:
                self.scope = saved
                return
            self.made.append(name)
            self.exact[name] = exact and all(self.exact.get(n, True) for n in reads)
        elif not (exact and all(self.exact.get(n, True) for n in reads)):
            # What shares memory with what was written is not exact either.
            written = self.t(reads[0])
            for n in self.names():
                if shares(self.t(n), written):
                    self.exact[n] = False
        self.lines.append(line)

    def unary(self):
        x = self.pick()
        exact = self.r.random() < 0.6
        op = self.r.choice(
            ("{}.neg()", "{}.abs()", "{}.relu()", "{}.floor()", "{}.sign()", "{}.clamp(-1, 1)", "{}.flip({d})", "{}.roll(1, {d})", "{}.clone()", "~{}", "{}.sort({d}).values", "{}.cumsum({d})", "{}.contiguous()", "{}.round()", "{}.tril()", "{}.triu(1)", "{}.argsort({d}, stable=True)", "{}.cummax({d}).values", "{}.isnan()", "{}.logical_not()", "{}.square()", "{}.diff(dim={d})", "{}.trunc()", "{}.frac()")
            if exact
            else ("{}.sin()", "{}.sigmoid()", "{}.clamp(-4, 4).exp()", "{}.tanh()", "{}.abs().sqrt()", "F.gelu({})", "{}.softmax({d})", "{}.log_softmax({d})", "F.silu({})", "{}.erf()", "{}.abs().add(1).log()", "{}.reciprocal()", "F.normalize({}.float(), dim={d})", "{}.cos()", "F.softplus({})", "{}.logcumsumexp({d})", "{}.cumprod({d})", "{}.rsqrt()", "{}.expm1()", "{}.atan()")
        )  # fmt: skip
        return op.format(x, d=self.dim(x)), [x], exact

    def binary(self):
        x = self.pick()
        y = self.like(x)
        exact = self.r.random() < 0.75
        op = self.r.choice(
            ("{} + {}", "{} - {}", "{} * {}", "torch.maximum({0}, torch.as_tensor({1}))", "{} > {}", "{} <= {}", "{} == {}", "torch.where({m}, {0}, {1})", "torch.add({}, {}, alpha=2)", "{} & {}", "{} | {}", "{} ^ {}", "{0}.masked_fill({m}, 1)", "torch.lerp({}, torch.as_tensor({}), 0.5)", "torch.where({m}, {1}, 0)")
            if exact
            else ("{} / {}", "{} // {}", "{} % {}", "torch.atan2({}, torch.as_tensor({}))", "{} ** 2", "torch.fmod({}, {})", "torch.hypot({}, torch.as_tensor({}))", "torch.addcmul({0}, {0}, torch.as_tensor({1}), value=0.5)", "{0}.abs().pow({1})", "torch.div({}, {}, rounding_mode='trunc')", "torch.copysign({}, {})")
        )  # fmt: skip
        mask = self.mask(x) if "{m}" in op else None
        return op.format(x, y, m=mask), [x, y], exact

    def reduce(self):
        x = self.pick()
        d = self.r.choice((self.dim(x), self.dim(x), ""))
        keep = self.r.choice(("", ", keepdim=True")) if d else ""
        op = self.r.choice(("sum", "sum", "mean", "amax", "amin", "prod", "any", "all", "var", "norm", "logsumexp", "argmax", "max", "min", "median", "count_nonzero", "std", "nansum", "cumsum"))  # fmt: skip
        if op in ("norm", "cumsum", "count_nonzero"):
            keep = ""
        if op in ("max", "min", "median") and d:
            return f"{x}.{op}({d}{keep}).{self.r.choice(('values', 'values', 'indices'))}", [x], True
        d = f"dim={d}" if op == "norm" and d else d
        return (
            f"{x}.{op}({d}{keep})",
            [x],
            op in ("sum", "amax", "amin", "any", "all", "max", "min", "count_nonzero", "argmax"),
        )

    def view(self):
        x = self.pick()
        t = self.t(x)
        y = self.pick()
        a, b = self.dim(x), self.dim(x)
        choices = [
            f"{x}.transpose({a}, {b})", f"{x}.t()", f"{x}.reshape(-1)", f"{x}.flatten()", f"{x}.unsqueeze({a})", f"{x}.squeeze({a})", f"{x}.squeeze()",
            f"{x}.view({y}.shape)", f"{x}.expand_as({y})", f"{x}.expand(2, {', '.join(['-1'] * t.dim())})", f"{x}.narrow({a}, 0, 1)", f"{x}.select({a}, -1)", f"{x}.diagonal()",
            f"{x}.unfold({a}, 2, 1)", f"{x}.chunk(2, {a})[-1]", f"{x}.split(2, {a})[0]", f"{x}.unbind({a})[0]", f"{x}.movedim({a}, {b})", f"{x}.mT", f"{x}.T", f"{x}[{self.position(x)}]",
            f"{x}.view(-1, {x}.shape[-1])", f"{x}.detach()", f"{x}.view_as({y})", f"{x}.reshape({y}.shape)", f"{x}.unflatten({a}, (1, -1))", f"{x}.permute({', '.join(map(str, self.r.sample(range(t.dim()), t.dim())))})",
            f"{x}.as_strided((2,), (1,))", f"{x}[{self.position(x)}]", f"torch.atleast_2d({x})", f"{x}.swapaxes(0, -1)", f"{x}.ravel()", f"{x}.tensor_split(2, {a})[1]", f"{x}.hsplit(1)[0]",
            f"{x}.broadcast_to({y}.shape)", f"{x}.real", f"{x}.squeeze((0, -1))", f"{x}.data", f"{x}.expand({y}.shape)", f"{x}.view({x}.shape[0], -1)", f"{x}[None]", f"{x}[..., None]",
        ]  # fmt: skip
        return self.r.choice(choices), [x], True

    def select(self):
        x = self.pick()
        t = self.t(x)
        d = self.r.randrange(max(t.dim(), 1))
        size = t.shape[d] if t.dim() else 1
        i, j = self.index(size), self.index(t.shape[0] if t.dim() else 1)
        before = ":, " * d
        choices = [
            f"{x}[{before}{i}]", f"{x}[{before}{i}]", f"{x}.index_select({d}, {i})", f"{x}.gather({d}, {i})", f"{x}.take({i})", f"F.embedding({i}, {x})", f"{x}[{j}, {i}]", f"{x}[{j}, ..., 0]", f"{x}[{j}][:, {i}]",
            f"{x}.take_along_dim({i}, {d})", f"{x}[{before}{self.r.choice(([0, 0], [-1], [0, -1]))}]", f"{x}.index_add({d}, {i}, {x}.index_select({d}, {i}))", f"{x}.scatter({d}, {x}.argsort({d}, stable=True), 1)",
            f"torch.zeros_like({x}).scatter_add({d}, {x}.argsort({d}, stable=True), {x})", f"{x}.topk(1, {d}).values", f"F.one_hot({i}, {size})", f"{x}.repeat_interleave(2, {d})", f"{x}.index_fill({d}, {i}, 2)", f"{x}.kthvalue(1, {d}).values",
            f"torch.bincount({i}, minlength=3)", f"torch.searchsorted({x}.flatten().sort().values, {x})", f"{x}.scatter_reduce({d}, {x}.argsort({d}, stable=True), {x}, 'amax')", f"{x}.index_copy({d}, {i}, {x}.index_select({d}, {i}) * 2)",
        ]  # fmt: skip
        return self.r.choice(choices), [x], True

    def by_data(self):
        x = self.pick()
        m = self.mask(x)
        y = self.pick()
        choices = [
            f"{x}[{m}]", f"{x}[{m}]", f"{x}[{m}] * 2", f"torch.masked_select({x}, {m})", f"({m}).nonzero()", f"{x}[({m}).nonzero(as_tuple=True)]", f"{x}[{m}].sum()", f"torch.cat([{x}[{m}], {x}.flatten()])",
            f"{x}.unique()", f"torch.where({m})[0]", f"{x}.flatten().repeat_interleave(({m}).flatten().long() * 2)", f"torch.cat([{x}[{m}], {x}[{m}] + 1])", f"{x}[{m}].sort().values", f"{x}[{m}].cumsum(0)",
            f"{x}[({m}).any(-1)]", f"{x}[({m}).flatten()[:{x}.shape[0]]]", f"{x}[{m}][None].expand(2, -1)", f"{x}[{m}].view(-1, 1) + {x}[{m}]", f"torch.stack([{x}[{m}], {x}[{m}]])", f"F.pad({x}[{m}], (1, 0))", f"{x}.unique(return_counts=True)[1]",
            f"{x}[{m}].outer({x}[{m}])", f"torch.zeros_like({x}[{m}])", f"torch.arange(({m}).sum())", f"{x}.masked_scatter({m}, {y})", f"{x}[{m}].flip(0)", f"torch.unique_consecutive({x})", f"{x}[{m}].long().bincount()", f"{x}[{m}].mean()",
        ]  # fmt: skip
        return self.r.choice(choices), [x, y], True

    def write(self):
        x = self.pick()
        y = self.like(x)
        d = self.dim(x)
        exact = self.r.random() < 0.8
        op = self.r.choice(
            ("{x}.add_({y})", "{x}.mul_({y})", "{x} += {y}", "{x} *= {y}", "{x}.zero_()", "{x}.fill_(2)", "{x}.copy_(torch.as_tensor({y}))", "{x}.clamp_(-1, 1)", "{x}.relu_()", "{x}.neg_()", "{x}.masked_fill_({m}, 1)", "{x}.sub_({y})", "{x}.floor_()", "{x}.cumsum_({d})", "{x}.tril_()", "{x}.t_()", "{x}.unsqueeze_({d})", "{x}.squeeze_()", "{x}.transpose_(0, -1)", "{x}.abs_()", "torch.add({x}, {y}, out={x})", "{x}.data.add_(1)", "{x}.detach().mul_(2)", "{x}.eq_({y})", "{x}.logical_not_()", "torch.neg({x}, out={z})", "torch.add({x}, 1, out={z})", "{x}.swapaxes_(0, -1)", "{x}.masked_scatter_({m}, {z})", "F.relu({x}, inplace=True)", "{x}.fill_diagonal_(3)", "{x}.bitwise_and_({y})", "{x}.random_(1, 2)", "{x}.set_({z})", "{x} = {x}.add_(1)", "torch.mul({x}, {y}, out={z})", "torch.cumsum({x}, {d}, out={z})")
            if exact
            else ("{x}.div_({y})", "{x}.sigmoid_()", "{x}.exp_()", "{x} /= {y}", "{x}.sin_()", "F.silu({x}, inplace=True)", "{x}.addcmul_({x}, torch.as_tensor({y}))", "{x}.pow_(2)", "{x}.tanh_()", "{x}.lerp_(torch.as_tensor({y}), 0.25)", "{x}.sqrt_()")
        )  # fmt: skip
        z = self.pick()
        m = self.mask(x) if "{m}" in op else None
        text = "!" + op.format(x=x, y=y, d=d, m=m, z=z)
        if self.r.random() < 0.1:
            text = "!with torch.no_grad(): " + text[1:]
        return text, [z if "out={z}" in op else x, x, y], exact

    def write_part(self):
        x = self.pick(lambda t: t.dim() > 0)
        t = self.t(x)
        d = self.r.randrange(t.dim())
        i, before = self.index(t.shape[d]), ":, " * d
        p = self.position(x)
        m = self.mask(x) if self.r.random() < 0.3 else "None"
        y = self.like(x)
        choices = [
            f"{x}[{p}] = {y}", f"{x}[{p}] += {y}", f"{x}[{p}].add_(1)", f"{x}[{p}].zero_()", f"{x}[{before}{i}] = {y}", f"{x}[{before}{i}] += 1", f"{x}.index_add_({d}, {i}, {x}.index_select({d}, {i}))", f"{x}.index_fill_({d}, {i}, 2)",
            f"{x}[{p}].mul_({y})", f"{x}[{p}] = {x}[{p}] * 2", f"{x}[{p}].copy_({x}[{p}].flip(0).clone())", f"{x}.index_copy_({d}, {i}, {x}.index_select({d}, {i}) + 1)", f"{x}.scatter_({d}, {x}.argsort({d}, stable=True), 1)", f"{x}.view(-1)[0] = 5",
            f"{x}.index_put_(({i},), torch.tensor(2, dtype={x}.dtype), accumulate=True)", f"{x}.diagonal().fill_(1)", f"{x}.t()[0] = 1", f"{x}.select({d}, 0).copy_({x}.select({d}, -1).clone())", f"{x}.unbind({d})[0].add_(1)", f"{x}.chunk(2, {d})[-1].mul_(2)",
            f"{x}.narrow({d}, 0, 1).fill_(3)", f"{x}[1:] = {x}[:-1].clone()", f"{x}[:-1] += {x}[1:].clone()", f"{x}.unfold({d}, 1, 1).add_(1)", f"{x}.flatten().add_(1)", f"{x}.reshape(-1).mul_(2)", f"{x}.scatter_add_({d}, {x}.argsort({d}, stable=True), {x}.clone())",
        ]  # fmt: skip
        if m != "None":
            choices = [
                f"{x}[{m}] = {y}",
                f"{x}[{m}] += 1",
                f"{x}[{m}] = 0",
                f"{x}[{m}] = {x}[{m}] * 2",
                f"{x}[{m}] *= 2",
                f"{x}[{m}] = {x}[{m}].flip(0)",
            ]
        return "!" + self.r.choice(choices), [x, y], True

    def cast(self):
        x, y = self.pick(), self.pick()
        to = self.r.choice((".float()", ".double()", ".bfloat16()", ".long()", ".int()", ".bool()", f".to({y}.dtype)", ".half()", ".to(torch.uint8)", f".type_as({y})", ".to(torch.float32, copy=True)", ".to(torch.int8)"))  # fmt: skip
        return x + to, [x], to in (".float()", ".double()", ".long()", ".bool()", ".to(torch.float32, copy=True)")

    def make(self):
        x = self.pick()
        choices = [
            f"torch.zeros_like({x})", f"torch.ones({x}.shape)", f"torch.full_like({x}, 2)", f"torch.arange({x}.shape[0])", f"torch.arange({x}.numel()).view({x}.shape)", f"{x}.new_zeros(3)", f"torch.eye({x}.shape[-1])", f"torch.empty_like({x}).fill_(1)",
            f"torch.linspace(0, 1, {x}.shape[0])", "torch.tensor([1.0, 2.0])", f"torch.tensor({x}.shape)", f"torch.ones({x}.shape[::-1])", f"{x}.new_full({x}.shape, 3)", f"torch.tril(torch.ones({x}.shape[-1], {x}.shape[-1]))", f"torch.zeros({x}.numel())",
            f"torch.empty({x}.shape).copy_({x})", f"torch.ones_like({x}, dtype=torch.int64)", "torch.zeros(())", "torch.arange(4)", f"torch.zeros(0, {x}.shape[-1])", f"{x}.new_empty(0)", f"torch.logspace(0, 1, {x}.shape[0])",
        ]  # fmt: skip
        return self.r.choice(choices), [], True

    def join(self):
        x = self.pick()
        y = self.pick(lambda t: t.dim() == self.t(x).dim())
        d = self.dim(x)
        return self.r.choice((
            f"torch.cat([{x}, {y}], {d})", f"torch.stack([{x}, {x}], {d})", f"torch.cat([{x}, {x}, {y}])", f"torch.hstack([{x}, {y}])", f"torch.stack([{x}, {y}])", f"{x}.repeat(2, 1)", f"torch.cat(list({x}.unbind(0)))", f"torch.vstack([{x}, {y}])", f"{x}.tile(2)", f"torch.cat([{x}[:1], {y}])", f"torch.stack(torch.meshgrid({x}.flatten(), {y}.flatten(), indexing='ij'))[0]", f"torch.block_diag({x}, {y})", f"torch.cat([{x}, {x}.new_empty(0)])", f"torch.column_stack([{x}, {y}])", f"torch.broadcast_tensors({x}, {y})[0]",
        )), [x, y], True  # fmt: skip

    def product(self):
        x = self.pick(lambda t: t.dim() > 0)
        y = self.pick(lambda t: t.dim() > 0)
        return self.r.choice((
            f"{x} @ {y}", f"{x} @ {y}.mT", f"{x} @ {x}.mT", f"{x}.flatten().dot({y}.flatten())", f"torch.einsum('...i,...i->...', {x}, {y})", f"F.linear({x}, {y})", f"{x}.flatten().outer({y}.flatten())", f"torch.addmm({x}, {x}, {y})", f"{x}.mv({y})", f"torch.einsum('ij,kj->ik', {x}, {y})", f"torch.tensordot({x}, {y}, 1)", f"{x}.mT @ {y}", f"torch.bmm({x}, {y}.transpose(1, 2))", f"torch.cdist({x}, {x})", f"torch.baddbmm({x}, {x}, {y})", f"F.bilinear({x}, {x}, {y})", f"torch.kron({x}, {y})", f"torch.trace({x})",
        )), [x, y], True  # fmt: skip

    def layer(self):
        x = self.pick()
        y = self.pick()
        n = f"{x}.shape[-1:]"
        return self.r.choice((
            f"F.layer_norm({x}, {n})", f"F.pad({x}, (1, 1))", f"F.max_pool1d({x}, 2)", f"F.avg_pool2d({x}, 2)", f"F.cross_entropy({x}, {x}.argmax(1))", f"F.mse_loss({x}, {y})", f"F.dropout({x}, 0.0)", f"F.conv1d({x}, {y})", f"F.group_norm({x}, 1)", f"F.pad({x}, (1, 1), mode='reflect')", f"F.interpolate({x}, scale_factor=2)", f"F.batch_norm({x}, None, None, training=True)", f"F.max_pool2d({x}, 2, 1)", f"F.conv2d({x}, {y})", f"F.pixel_shuffle({x}, 2)", f"F.cosine_similarity({x}, {y}, dim=-1)", f"F.scaled_dot_product_attention({x}, {x}, {y})", f"F.adaptive_avg_pool2d({x}, 1)", f"F.glu({x}, -1)", f"F.pad({x}, (0, 1), mode='circular')", f"F.rms_norm({x}, {n})", f"F.huber_loss({x}, {y})", f"F.nll_loss({x}, {x}.argmax(1))", f"F.kl_div({x}, {y}, reduction='batchmean')", f"F.unfold({x}, 1)", f"F.adaptive_max_pool1d({x}, 1)", f"F.instance_norm({x})", f"F.binary_cross_entropy_with_logits({x}, {y})", f"F.smooth_l1_loss({x}, {y})",
        )), [x, y], False  # fmt: skip

    def python(self):
        x = self.pick()
        if not self.exact[x]:
            raise LookupError
        y = self.pick()
        return self.r.choice((
            f"{y} * {x}.shape[0]", f"{y} + len({x})", f"{y} * {x}.sum().item()", f"{y} + 1 if {x}.shape[0] > 2 else {y} - 1", f"sum({x}.unbind(0))", f"sum(row for row in {x})", f"{y} + 1 if {x}.sum() > 0 else {y} * 2", f"{y} + {x}.numel() / {x}.shape[-1]", f"torch.stack([row * 2 for row in {x}])", f"torch.tensor({x}.tolist())", f"{y}[:int({x}.sum())]", f"torch.cat([row[None] for row in {x} if row.sum() > 0])", f"{y} + float({x}.max())", f"{y}.clone() if {x}.is_contiguous() else {y}", f"{y} * {x}.stride(0)", f"torch.full(({x}.shape[0] * 2,), {x}.shape[-1])", f"{y} * max({x}.shape)", f"{y}.add({x}.dim())", f"{y}[{x}.shape[0] // 2:]", f"torch.ones(int({x}.abs().sum()) % 5)",
        )), [x, y], True  # fmt: skip

    def gradients(self):
        x = self.pick(lambda t: t.dtype.is_floating_point)
        y = self.pick(lambda t: t.dtype.is_floating_point)
        return self.r.choice((
            f"{x}.detach() * {y}", f"!{x}.requires_grad_()", f"torch.autograd.grad({x}.sum(), {y}, allow_unused=True)[0]", f"!{x}.detach_()", f"{x}.detach().requires_grad_() * {y}", f"torch.autograd.grad(({x} * {y}).sum(), {y})[0]", f"!{x}.sum().backward(inputs=[{y}])", f"{x}.clone().detach()", f"!{x}.retain_grad()", f"{x}.requires_grad * {y}", f"{y}.grad + {x}", f"!{x}.grad = None", f"!torch.autograd.backward([{x}.sum()])", f"!{x}.register_hook(lambda g: g * 2)",
        )), [x, y], False  # fmt: skip


def broadcasts(a, b):
    return all(m == n or m == 1 or n == 1 for m, n in zip(reversed(a), reversed(b)))


def shares(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def arguments_or_none(program):
    try:
        return arguments(program, 0)
    except (RuntimeError, IndexError):
        return None


def write(seed, statements=None):
    w = Writer(seed, statements)
    return w.program() if w.valid and w.made else None
