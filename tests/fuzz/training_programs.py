"""Random modules, a step that trains them, and what happens between the steps: layers with state, attributes that change, hooks, tied
parameters, optimizers and schedulers, averages of parameters, modes, checkpoints of state.

As in effect_programs, a module is written while eager runs it: a statement that eager refuses is left out.
"""

import random

import torch

SIZES = (1, 2, 3, 4, 6, 8)
LIMIT = 1 << 12

HEADER = """
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.nn.utils import parametrizations, parametrize, clip_grad_norm_, clip_grad_value_
"""


class Program:
    """`layers`: (lines of __init__, lines of forward) of each statement; `loss`, `before`, `after`: lines of the step around the forward;
    `events`: lines that run between steps; `shape`, `dtype`: of the input, whose first size differs between calls."""

    def __init__(self, seed, **parts):
        self.seed = seed
        self.__dict__.update(parts)
        self.parts = parts

    def source(self):
        indent = lambda lines, by: "".join(f"{' ' * by}{line}\n" for text in lines for line in text.split("\n"))
        init = indent([line for layer in self.layers for line in layer[0]], 8)
        forward = indent([line for layer in self.layers for line in layer[1]], 8)
        return (
            f"{HEADER}\n# input {self.shape}, {self.dtype}; compiled: {self.compiled}; dynamic: {self.dynamic}\n"
            f"class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n{init}\n"
            f"    def forward(self, x):\n{forward}        return {self.result}\n\n"
            f"def make(model):\n    optimizer = {self.optimizer}\n    scheduler = {self.scheduler}\n    average = copy.deepcopy(model)\n"
            "    return optimizer, scheduler, average\n\n"
            f"def loss_of(out, x):\n    return {self.loss}\n\n"
            f"def step(model, optimizer, scheduler, average, x):\n{indent(self.before, 4)}    out = model(x)\n    loss = loss_of(out, x)\n"
            f"    loss.backward()\n{indent(self.after, 4)}    return out.detach(), loss.detach()\n\n"
            "EVENTS = [\n" + "".join(f"    {event!r},\n" for event in self.events) + "]\n"
        )

    def but(self, **parts):
        return Program(self.seed, **(self.parts | parts))

    def smaller(self):
        without = lambda items, i: items[:i] + items[i + 1 :]
        for i in reversed(range(len(self.events))):
            yield self.but(events=without(self.events, i))
        for i in reversed(range(len(self.layers))):
            yield self.but(layers=without(self.layers, i))
        for part in ("before", "after"):
            for i in range(len(getattr(self, part))):
                yield self.but(**{part: without(getattr(self, part), i)})
        if self.scheduler != "None":
            yield self.but(scheduler="None", after=[line for line in self.after if "scheduler" not in line])
        if "SGD" not in self.optimizer:
            yield self.but(optimizer="torch.optim.SGD(model.parameters(), 0.1)")
        if self.loss != "out.sum()":
            yield self.but(loss="out.sum()")
        for layer in self.layers:
            for r in layer[2]:
                if r != self.result:
                    yield self.but(result=r)


def batch(program, call):
    """The first size of the input of a call; the first two have the same."""
    r = random.Random(program.seed * 7 + (call if call > 1 else 0))
    return r.choice(SIZES)


def make_input(program, call):
    """Of a Program or of what writes one."""
    g = torch.Generator().manual_seed(program.seed * 31 + call)
    x = torch.randn([batch(program, call), *program.shape], generator=g, dtype=torch.float64, device="cpu")
    return x.to(program.dtype).to(torch.get_default_device())


class Writer:
    def __init__(self, seed):
        self.seed, self.r = seed, random.Random(seed)
        self.dtype = self.r.choice((torch.float64, torch.float64, torch.float32))
        self.shape = [self.r.choice(SIZES) for _ in range(self.r.choice((1, 1, 2, 2, 3)))]
        self.layers, self.made = [], []
        self.scope = {}
        exec(HEADER, self.scope)
        self.scope["self"] = self.scope["nn"].Module()
        self.scope["x"] = make_input(self, 0)
        wanted, tries = self.r.randint(1, 7), 0
        while len(self.layers) < wanted and tries < 60:
            tries += 1
            self.statement()

    def program(self):
        if not self.made or not list(self.scope["self"].parameters()):
            return None
        r = self.r
        return Program(
            self.seed, shape=self.shape, dtype=self.dtype, layers=self.layers, result=self.made[-1], optimizer=self.optimizer(), scheduler=self.scheduler(),
            loss=self.loss(), before=self.before(), after=self.after(), events=[self.event() for _ in range(r.randint(2, 6))],
            compiled=r.choice(("model", "step", "step", "loss", "parts", "in place")), dynamic=r.choice((None, None, None, True, False)),
        )  # fmt: skip

    # ---- layers ----

    def pick(self):
        names = ["x", *self.made]
        return names[-1] if self.r.random() < 0.7 else self.r.choice(names)

    def statement(self):
        kinds = (
            (self.layer, 10), (self.activation, 4), (self.function, 5), (self.join, 4), (self.buffer, 4), (self.attribute, 4), (self.parameter, 3),
            (self.list, 3), (self.branch, 3), (self.wrapped, 3), (self.hook, 2), (self.detached, 2), (self.many, 2),
        )  # fmt: skip
        kind = self.r.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        try:
            init, forward = kind()
        except (LookupError, ValueError):
            return
        name = f"v{len(self.made)}"
        forward = [line.replace("NEW", name) for line in forward]
        saved, state = dict(self.scope), self.scope["self"]
        try:
            for line in init:
                exec(line, self.scope)
            state.to(self.dtype)
            for line in forward:
                exec(line, self.scope)
            if name in self.scope:
                out = self.scope[name]
                if not isinstance(out, torch.Tensor) or not out.is_floating_point() or not 0 < out.numel() <= LIMIT:
                    raise ValueError
                if not out.detach().abs().max() < 100:
                    raise ValueError
        except Exception:
            self.scope = saved
            return
        bound = [name] if name in self.scope else []
        self.made += bound
        self.layers.append((init, forward, bound))

    def module(self):
        return f"m{sum(len(layer[0]) for layer in self.layers)}"

    def layer_for(self, t):
        s, n = t.shape, t.dim()
        last, k = s[-1], self.r.choice(SIZES)
        choices = [f"nn.Linear({last}, {k})", f"nn.Linear({last}, {last}, bias=False)", f"nn.LayerNorm({last})", f"nn.RMSNorm({last})", "nn.Dropout(0.0)", "nn.Flatten()", f"nn.LazyLinear({k})"]  # fmt: skip
        if n >= 2:
            c = s[1]
            choices += [
                f"nn.GroupNorm(1, {c})",
                f"nn.BatchNorm1d({c})",
                f"nn.BatchNorm1d({c}, momentum=None)",
                f"nn.Bilinear({last}, {last}, {k})",
            ]
        if n == 3:
            choices += [f"nn.Conv1d({c}, {k}, 3, padding=1)", f"nn.Conv1d({c}, {c}, 1, groups={c})", "nn.MaxPool1d(2, 1)", "nn.AvgPool1d(2, 1)", "nn.AdaptiveAvgPool1d(2)", f"nn.InstanceNorm1d({c}, track_running_stats=True)", f"nn.ConvTranspose1d({c}, {k}, 2)"]  # fmt: skip
        if n == 4:
            choices += [f"nn.Conv2d({c}, {k}, 3, padding=1)", f"nn.Conv2d({c}, {c}, 1, groups={c})", f"nn.BatchNorm2d({c})", f"nn.BatchNorm2d({c}, affine=False)", "nn.MaxPool2d(2, 1)", "nn.AdaptiveAvgPool2d(1)", "nn.AvgPool2d(2, 1)", f"nn.ConvTranspose2d({c}, {k}, 2)", "nn.Upsample(scale_factor=2)", f"nn.Conv2d({c}, {k}, 1, padding_mode='circular')"]  # fmt: skip
        return self.r.choice(choices)

    def layer(self):
        h, m = self.pick(), self.module()
        return [f"self.{m} = {self.layer_for(self.scope[h])}"], [f"NEW = self.{m}({h})"]

    def activation(self):
        h, m = self.pick(), self.module()
        made = self.r.choice(("nn.ReLU()", "nn.ReLU(inplace=True)", "nn.GELU()", "nn.SiLU()", "nn.Softmax(-1)", "nn.PReLU()", "nn.Hardswish()", "nn.LeakyReLU(inplace=True)", "nn.ELU(inplace=True)", "nn.Softplus()", "nn.Tanh()", "nn.GLU()", "nn.LogSoftmax(-1)", "nn.Mish()", "nn.Threshold(0.1, 0.5)", "nn.Identity()"))  # fmt: skip
        return [f"self.{m} = {made}"], [f"NEW = self.{m}({h})"]

    def function(self):
        h = self.pick()
        return [], [f"NEW = {self.r.choice(('torch.sin({h})', '{h} * 2 + 1', '{h}.mean(-1, keepdim=True)', '{h}.flatten(1)', '{h}.transpose(-1, -2)', '{h} - {h}.mean(0)', 'F.normalize({h}, dim=-1)', '{h}.softmax(-1)', '{h}.abs().clamp(max=1)', '{h}[:, :1]', '{h}.sum(0, keepdim=True)', '{h}.reshape({h}.shape[0], -1)', '{h}.unsqueeze(1)', '{h}.cumsum(-1)', '{h}.sort(-1).values', 'torch.where({h} > 0, {h}, {h} * 0.1)', '{h}.clone().mul_(0.5)', '{h}.chunk(2, -1)[0]', '{h}.view(-1, {h}.shape[-1])', 'F.pad({h}, (1, 1))', '{h}.amax(-1, keepdim=True)', 'F.gelu({h})', '{h} @ {h}.mT', 'F.scaled_dot_product_attention({h}, {h}, {h})', '{h}.var(0) + {h}', '{h}.roll(1, 0)', '{h}.expand(2, *{h}.shape)[1]', '{h}.square().mean(-1)', 'F.dropout({h}, 0.0, self.training)'))}".format(h=h)]  # fmt: skip

    def join(self):
        a = self.pick()
        b = self.pick()
        return [], [self.r.choice((f"NEW = {a} + {b}", f"NEW = {a} * {b}", f"NEW = torch.cat([{a}, {b}], -1)", f"NEW = torch.cat([{a}, {b}], 1)", f"NEW = {a} - 0.5 * {b}", f"{a} = {a}.clone()\n{a} += {b}\nNEW = {a} * 1", f"NEW = torch.lerp({a}, {b}, 0.3)", f"NEW = {a} @ {b}.mT", f"NEW = {a} + {b}.mean()"))]  # fmt: skip

    def buffer(self):
        h, m = self.pick(), self.module()
        last = self.scope[h].shape[-1]
        init = [f"self.register_buffer('{m}', torch.zeros({last}))"]
        if self.r.random() < 0.2:
            init = [f"self.register_buffer('{m}', torch.zeros({last}), persistent=False)"]
        change = self.r.choice((
            f"self.{m}.add_(1)", f"self.{m} += {h}.detach().flatten(0, -2).mean(0)", f"self.{m} = self.{m} * 0.9 + {h}.detach().mean()", f"self.{m}.copy_({h}.detach().flatten(0, -2)[0])", f"self.{m}.mul_(0.5).add_({h}.detach().amax())",
            f"with torch.no_grad():\n    self.{m}.lerp_({h}.flatten(0, -2).mean(0), 0.1)", f"self.{m}[0] = {h}.detach().sum()", f"if self.training:\n    self.{m}.add_(0.25)", f"self.{m}[1:] += self.{m}[:-1].clone() + 1", f"self.{m}.data = self.{m}.data + 1",
            f"self.{m}.data.mul_(0.5)", f"self.{m} = {h}.detach().flatten(0, -2)[-1]", f"torch.add(self.{m}, 1, out=self.{m})",
        ))  # fmt: skip
        use = f"NEW = {h} + 0.1 * self.{m}"
        return init, self.r.choice(([change, use], [use, change], [f"{use}.clone()", change]))

    def attribute(self):
        h, m = self.pick(), self.module()
        init, change, use = self.r.choice((
            ("0", f"self.{m} += 1", f"{h} * (1 + 0.1 * self.{m})"), ("0", f"self.{m} = self.{m} + 1", f"{h} if self.{m} % 2 else {h} * 2"), ("[]", f"self.{m}.append({h}.shape[0])", f"{h} + len(self.{m})"), ("None", f"self.{m} = {h}.detach()", f"{h} if self.{m} is None else {h} + self.{m}.mean()"),
            ("{}", f"self.{m}['a'] = self.{m}.get('a', 0) + 1", f"{h} + self.{m}['a']"), ("0.5", f"self.{m} *= 0.9", f"{h} * self.{m}"), ("None", f"self.{m} = {h}", f"{h} * 2"), ("[]", f"self.{m}.append({h}.detach().sum())", f"{h} + self.{m}[0]"), ("torch.zeros(())", f"self.{m} += 1", f"{h} + self.{m}"),
            ("True", f"self.{m} = not self.{m}", f"{h}.relu() if self.{m} else {h}"), ("0.0", f"self.{m} += float({h}.shape[0])", f"{h} / (1 + self.{m})"), ("[torch.ones(1)]", f"self.{m}[0] = self.{m}[0] + 1", f"{h} * self.{m}[0]"), ("set()", f"self.{m}.add({h}.shape[0])", f"{h} + len(self.{m})"),
        ))  # fmt: skip
        return [f"self.{m} = {init}"], [change, f"NEW = {use}"]

    def parameter(self):
        h, m = self.pick(), self.module()
        last = self.scope[h].shape[-1]
        weights = [n for n, p in self.scope["self"].named_parameters() if p.dim() == 2 and p.shape[1] == last]
        if weights and self.r.random() < 0.5:
            w = f"self.{self.r.choice(weights)}"
            return [], [
                self.r.choice(
                    (
                        f"NEW = F.linear({h}, {w})",
                        f"NEW = {h} @ {w}.t()",
                        f"NEW = {h} + {w}.sum() * 0.1",
                        f"NEW = {h} @ {w}.t() @ {w}",
                    )
                )
            ]
        return self.r.choice((
            ([f"self.{m} = nn.Parameter(torch.ones({last}) * 0.5)"], [f"NEW = {h} * self.{m}"]), ([f"self.{m} = nn.Parameter(torch.linspace(-1, 1, {last}))"], [f"NEW = {h} + self.{m}.tanh()"]), ([f"self.{m} = nn.Parameter(torch.zeros(()))"], [f"NEW = {h} * self.{m}.exp()"]),
            ([f"self.{m} = nn.ParameterList([nn.Parameter(torch.ones({last})) for _ in range(3)])"], [f"NEW = {h}\nfor p in self.{m}:\n    NEW = NEW * p"]), ([f"self.{m} = nn.ParameterDict({{'a': nn.Parameter(torch.ones({last})), 'b': nn.Parameter(torch.ones(1))}})"], [f"NEW = {h} * self.{m}['a'] + self.{m}['b']"]),
            ([f"self.{m} = nn.Parameter(torch.ones(3, {last}), requires_grad=False)"], [f"NEW = {h} * self.{m}[1]"]), ([f"self.{m} = nn.Embedding(4, {last})"], [f"NEW = {h} + self.{m}(torch.arange({h}.shape[0]) % 4).sum(0)"]),
        ))  # fmt: skip

    def list(self):
        h, m = self.pick(), self.module()
        last = self.scope[h].shape[-1]
        one = self.r.choice((f"nn.Linear({last}, {last})", f"nn.Sequential(nn.Linear({last}, {last}), nn.ReLU())", f"nn.LayerNorm({last})", "nn.PReLU()", f"nn.Sequential(nn.LayerNorm({last}), nn.Linear({last}, {last}), nn.Dropout(0.0))"))  # fmt: skip
        n = self.r.randint(1, 4)
        return self.r.choice((
            ([f"self.{m} = nn.ModuleList([{one} for _ in range({n})])"], [f"NEW = {h}\nfor layer in self.{m}:\n    NEW = layer(NEW) + NEW"]), ([f"self.{m} = nn.ModuleList([{one} for _ in range({n})])"], [f"NEW = {h}\nfor i, layer in enumerate(self.{m}):\n    NEW = layer(NEW) if i % 2 == 0 else NEW + layer({h})"]),
            ([f"self.{m} = nn.ModuleDict({{f'k{{i}}': {one} for i in range({n})}})"], [f"NEW = {h}\nfor name, layer in self.{m}.items():\n    NEW = NEW + layer(NEW) * len(name)"]), ([f"self.{m} = nn.Sequential(*[{one} for _ in range({n})])"], [f"NEW = self.{m}({h})"]),
            ([f"self.{m} = {one}"], [f"NEW = {h}\nfor _ in range({n}):\n    NEW = self.{m}(NEW)"]), ([f"self.{m} = nn.ModuleList([{one}] * {n})"], [f"NEW = sum(layer({h}) for layer in self.{m})"]), ([f"self.{m} = nn.ModuleList([{one} for _ in range({n})])"], [f"NEW = torch.stack([layer({h}) for layer in self.{m}]).mean(0)"]),
            ([f"self.{m} = {one}"], [f"NEW = {h}\nwhile NEW.dim() < 5:\n    NEW = self.{m}(NEW)[None]\nNEW = NEW.flatten(0, -{self.scope[h].dim()})"]), ([f"self.{m} = nn.ModuleList([{one} for _ in range({n})])"], [f"NEW = {h}\nfor layer in self.{m}[:{h}.shape[0]]:\n    NEW = layer(NEW)"]),
        ))  # fmt: skip

    def branch(self):
        h = self.pick()
        return [], [f"NEW = {self.r.choice(('{h} * 2 if self.training else {h}', '{h} + 1 if {h}.shape[0] > 2 else {h}', '{h} if {h}.sum() > 0 else -{h}', '{h} * {h}.shape[0]', '{h} if torch.is_grad_enabled() else {h} * 2', '{h} + (0 if {h}.requires_grad else 1)', '{h}[: max(1, {h}.shape[0] // 2)]', '{h} * (1 if isinstance(self, nn.Module) else 2)', '{h} + sum(p.sum() for p in self.parameters()) * 0.01', '{h} * len(list(self.children()))', '{h} + {h}[{h} > 0].sum()', '{h} + len(self.state_dict())', '{h} * {h}.sum().item()'))}".format(h=h)]  # fmt: skip

    def wrapped(self):
        h, m = self.pick(), self.module()
        last = self.scope[h].shape[-1]
        return self.r.choice((
            ([f"self.{m} = parametrizations.weight_norm(nn.Linear({last}, {last}))"], [f"NEW = self.{m}({h})"]), ([f"self.{m} = parametrizations.spectral_norm(nn.Linear({last}, {last}))"], [f"NEW = self.{m}({h})"]), ([f"self.{m} = parametrizations.orthogonal(nn.Linear({last}, {last}))"], [f"NEW = self.{m}({h})"]),
            ([f"self.{m} = nn.Linear({last}, {last})"], [f"NEW = checkpoint(self.{m}, {h}, use_reentrant=False)"]), ([f"self.{m} = nn.GRU({last}, {last}, batch_first=True)"], [f"NEW = self.{m}({h})[0]"]), ([f"self.{m} = nn.LSTM({last}, {last})"], [f"NEW = self.{m}({h})[1][0]"]),
            ([f"self.{m} = nn.MultiheadAttention({last}, 1, batch_first=True)"], [f"NEW = self.{m}({h}, {h}, {h})[0]"]), ([f"self.{m} = nn.TransformerEncoderLayer({last}, 1, 8, 0.0, batch_first=True)"], [f"NEW = self.{m}({h})"]), ([f"self.{m} = nn.Linear({last}, {last})"], [f"NEW = torch.func.functional_call(self.{m}, {{'weight': self.{m}.weight * 2}}, ({h},))"]),
            ([f"self.{m} = nn.RNN({last}, {last})"], [f"NEW = self.{m}({h})[0]"]), ([f"self.{m} = nn.GRUCell({last}, {last})"], [f"NEW = self.{m}({h}.flatten(0, -2))"]), ([f"self.{m} = nn.Linear({last}, {last})"], [f"NEW = checkpoint(lambda t: self.{m}(t).relu() * {h}, {h}, use_reentrant=False)"]),
            ([f"self.{m} = nn.Linear({last}, {last})"], [f"NEW = torch.vmap(self.{m})({h})"]),
        ))  # fmt: skip

    def hook(self):
        h, m = self.pick(), self.module()
        last = self.scope[h].shape[-1]
        hook = self.r.choice((
            "register_forward_hook(lambda m, i, o: o * 2)", "register_forward_pre_hook(lambda m, i: (i[0] + 1,))", "register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,) if gi[0] is not None else None)", "weight.register_hook(lambda g: g * 0.5)", "register_forward_hook(lambda m, i, o: setattr(m, 'seen', o.detach()))",
            "register_full_backward_pre_hook(lambda m, g: (g[0] * 2,))", "register_buffer('calls', torch.zeros(()))", "weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))",
        ))  # fmt: skip
        return [f"self.{m} = nn.Linear({last}, {last})\nself.{m}.{hook}"], [f"NEW = self.{m}({h})"]

    def detached(self):
        h, m = self.pick(), self.module()
        last = self.scope[h].shape[-1]
        return self.r.choice((
            ([], [f"with torch.no_grad():\n    NEW = {h} * 2\nNEW = NEW + {h}"]), ([], [f"NEW = {h}.detach() + {h}.sin()"]), ([f"self.{m} = nn.Linear({last}, {last})"], [f"with torch.no_grad():\n    w = self.{m}({h})\nNEW = {h} + w"]), ([], [f"with torch.autocast('cpu', torch.bfloat16, enabled=False):\n    NEW = {h} @ {h}.mT"]),
            ([f"self.{m} = nn.Linear({last}, {last})\nself.{m}.requires_grad_(False)"], [f"NEW = self.{m}({h})"]), ([], [f"with torch.enable_grad():\n    NEW = {h} * 3"]), ([f"self.{m} = nn.Linear({last}, {last}).eval()"], [f"NEW = self.{m}({h}) * (1 if self.{m}.training else 2)"]),
            ([], [f"NEW = {h}.clone()\nNEW.register_hook(lambda g: g * 0.5)\nNEW = NEW * 1"]),
        ))  # fmt: skip

    def many(self):
        h, m = self.pick(), self.module()
        last = self.scope[h].shape[-1]
        return self.r.choice((
            ([f"self.{m} = nn.ModuleList([nn.Linear({last}, {last}) for _ in range(2)])\nself.{m}[1].weight = self.{m}[0].weight"], [f"NEW = self.{m}[1](self.{m}[0]({h}))"]), ([f"self.{m} = self._modules.get('m0', nn.Identity())"], [f"NEW = self.{m}({h})"]),
            ([f"self.{m} = [nn.Linear({last}, {last}).to({self.dtype}).requires_grad_(False)]"], [f"NEW = self.{m}[0]({h})"]), ([f"self.{m} = torch.nn.init.normal_"], [f"NEW = {h} * 1"]),
        ))  # fmt: skip

    # ---- the step ----

    def optimizer(self):
        r = self.r
        one = r.choice((
            "SGD({p}, 0.1)", "SGD({p}, 0.1, momentum=0.9)", "SGD({p}, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01)", "Adam({p}, 0.01)", "AdamW({p}, 0.01)", "AdamW({p}, 0.01, amsgrad=True)", "AdamW({p}, 0.01, foreach=False)", "Adam({p}, 0.01, fused=True)", "RMSprop({p}, 0.01)", "RMSprop({p}, 0.01, momentum=0.9, centered=True)", "Adagrad({p}, 0.01)",
            "Adadelta({p})", "Adamax({p}, 0.01)", "NAdam({p}, 0.01)", "RAdam({p}, 0.01)", "ASGD({p}, 0.01)", "Rprop({p}, 0.01)", "SGD({p}, 0.1, maximize=True)", "AdamW({p}, torch.tensor(0.01), foreach=False)", "Adam({p}, 0.01, weight_decay=0.1, maximize=True)", "SGD({p}, 0.1, foreach=False, momentum=0.5, dampening=0.1)",
        ))  # fmt: skip
        groups = r.choice(
            (
                *["model.parameters()"] * 3,
                "[{'params': [p for p in model.parameters() if p.dim() > 1]}, {'params': [p for p in model.parameters() if p.dim() <= 1], 'lr': 0.02}]",
            )
        )
        return "torch.optim." + one.format(p=groups)

    def scheduler(self):
        if self.r.random() < 0.6:
            return "None"
        return "torch.optim.lr_scheduler." + self.r.choice(("StepLR(optimizer, 2, 0.5)", "ExponentialLR(optimizer, 0.9)", "CosineAnnealingLR(optimizer, 10)", "LambdaLR(optimizer, lambda n: 1 / (n + 1))", "LinearLR(optimizer)", "OneCycleLR(optimizer, 0.1, total_steps=50)"))  # fmt: skip

    def loss(self):
        return self.r.choice(("out.square().mean()", "out.sum()", "(out - 1).abs().mean()", "F.cross_entropy(out.flatten(0, -2), torch.arange(out.flatten(0, -2).shape[0]) % out.shape[-1])", "F.mse_loss(out, torch.ones_like(out))", "out.mean() + x.mean()", "out.logsumexp(-1).mean()", "(out * torch.linspace(-1, 1, out.shape[-1]).to(out)).sum()", "F.smooth_l1_loss(out, out.detach() * 0.5)", "out.std(unbiased=False)"))  # fmt: skip

    def before(self):
        return self.r.choice((["optimizer.zero_grad()"], ["optimizer.zero_grad(set_to_none=False)"], ["model.zero_grad()"], [], ["for p in model.parameters():\n    p.grad = None"], ["optimizer.zero_grad()", "model.train()"]))  # fmt: skip

    def after(self):
        lines = self.r.sample(("clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_value_(model.parameters(), 0.5)", "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.mul_(0.5)", "torch._foreach_mul_([p.grad for p in model.parameters() if p.grad is not None], 0.5)", "for p in model.parameters():\n    if p.grad is not None:\n        p.grad = p.grad + 0.01 * p.detach()"), self.r.choice((0, 0, 1, 2)))  # fmt: skip
        lines.append("optimizer.step()")
        if self.r.random() < 0.5:
            lines.append("if scheduler is not None:\n    scheduler.step()")
        more = ("with torch.no_grad():\n    for p, q in zip(model.parameters(), average.parameters()):\n        q.lerp_(p, 0.1)", "with torch.no_grad():\n    for p, q in zip(model.parameters(), average.parameters()):\n        q.mul_(0.9).add_(p, alpha=0.1)", "with torch.no_grad():\n    for p in model.parameters():\n        p.clamp_(-1, 1)", "optimizer.zero_grad()", "for p in model.parameters():\n    p.data.mul_(0.99)", "for p, q in zip(model.parameters(), average.parameters()):\n    q.data = p.data.clone()", "for group in optimizer.param_groups:\n    group['lr'] *= 0.9")  # fmt: skip
        return lines + self.r.sample(more, self.r.choice((0, 0, 1, 1, 2)))

    def event(self):
        """What happens between steps; `model`, `optimizer`, `scheduler`, `average`, `x`, `run` are at hand."""
        return self.r.choice((
            "", "", "", "model.eval()", "model.train()", "for g in optimizer.param_groups: g['lr'] = g['lr'] * 0.5", "next(iter(model.parameters())).requires_grad_(False)", "[p.requires_grad_(True) for p in model.parameters() if p.is_floating_point()]", "model.load_state_dict(average.state_dict())", "model.load_state_dict(copy.deepcopy(model.state_dict()))",
            "with torch.no_grad(): seen.append(run(x))", "model.zero_grad()", "with torch.no_grad(): next(iter(model.parameters())).mul_(0.5)", "next(iter(model.parameters())).data = next(iter(model.parameters())).data.clone()", "average = copy.deepcopy(model)", "optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))", "seen.append(run(x))",
            "for m in model.modules(): m.training = not m.training", "with torch.inference_mode(): seen.append(run(x).clone())", "for b in model.buffers(): b.zero_()", "optimizer.state.clear()", "seen.append(run(x.requires_grad_()))", "list(model.children())[0].eval() if list(model.children()) else None", "model.register_forward_hook(lambda m, i, o: o * 0.5)",
            "for n, b in list(model.named_buffers(recurse=False)): setattr(model, n, b + 1)", "for n, p in list(model.named_parameters(recurse=False)): setattr(model, n, nn.Parameter(p.detach() * 0.5))", "model.requires_grad_(False) and model.requires_grad_(True)", "x = x[:1]", "x = torch.cat([x, x])", "torch.set_grad_enabled(True)", "x = x.clone().requires_grad_()",
            "for m in model.modules(): m.momentum = 0.3", "for m in model.modules(): m.p = 0.0", "for m in model.modules(): m.eps = 1e-3", "seen.append(average(x))", "y = run(x); y.sum().backward(); seen.append(y)",
        ))  # fmt: skip


def write(seed):
    torch.manual_seed(seed)
    return Writer(seed).program()
