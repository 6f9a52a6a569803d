"""Kinds of things that a random world holds: how each is made, what can be read of it, what can be changed in place.

Texts are templates: {p} is the thing's path, {q} the path of another thing, {c} a class of the world, {n} a name, {k} a key, {v} a number or
text, {t} a tensor. Names, keys and numbers come from few, so that they coincide.
"""

from dataclasses import dataclass, field

NAMES = ("a", "b", "c", "m")
KEYS = ("'a'", "'b'", "'c'", "0", "1", "True", "(1, 2)")
NUMBERS = ("0", "1", "2", "3", "5", "-1", "300", "True", "False", "0.0", "-0.0", "1.0", "2.5", "3.0")
LEAVES = (
    *NUMBERS,
    "'a'",
    "'b'",
    "'ab'",
    "''",
    "None",
    "(1, 2)",
    "(1, 2.0)",
    "torch.float32",
    "torch.float64",
    "torch.Size([2, 3])",
    "range(3)",
    "slice(0, 2)",
)
TENSORS = (
    "torch.ones(2, 3)", "torch.ones(2, 3)", "torch.arange(6.0).reshape(2, 3)", "torch.zeros(3)", "torch.ones(3, 2).t()", "torch.ones(2, 3, dtype=torch.float64)", "torch.tensor(2.0)",
    "torch.ones(2, 3, requires_grad=True)", "torch.nn.Parameter(torch.ones(2, 3))", "torch.arange(6)[::2]", "torch.ones(2, 3, dtype=torch.int64)", "torch.ones(1, 3).expand(2, 3)", "torch.ones(6)[:3]",
    "torch.tensor([True, False, True])", "torch.ones(0)",
)  # fmt: skip


@dataclass
class Node:
    """A thing of the world: the expression that makes it, and what hangs off it."""

    kind: str
    expr: str
    kids: list = field(default_factory=list)  # (suffix of the path, how it is set or None, Node)


# ---- what each kind offers ----

ANY_READS = ("{p} is {q}", "{p} is None", "type({p}) is type({q})", "{p} == {q}", "isinstance({p}, (int, str))", "isinstance({p}, {c})", "callable({p})", "hasattr({p}, '{n}')", "getattr({p}, '{n}', 7)", "bool({p})",
             "{p} in ({q}, 1)", "isinstance({p}, torch.Tensor)", "{p} is {q}", "not {p}", "{p} or 3", "{p}.__class__ is {c}", "isinstance({p}, collections.abc.Callable)")  # fmt: skip

READS = {
    "leaf": ("{p}", "{p}", "{p} + 1", "{p} == {v}", "[1, 2, 3][{p}]", "str({p})", 'f"{{{p}}}"', "{p} * 2", "type({p}).__name__", "max({p}, 1)", "-{p}", "int({p})"),
    "tensor": (
        "{p}", "{p}", "{p}.sum()", "{p} * 2", "{p}.dtype is torch.float32", "{p}.dtype", "{p}.shape[-1]", "{p}.stride()", "{p}.requires_grad", "{p}.is_leaf", "{p}.grad is None", "{p}.grad", "{p}.ndim", "{p}.is_contiguous()",
        "{p}.storage_offset()", "{p}._version", "{p}.device.type", "{p}.layout", "type({p}) is torch.nn.Parameter", "len({p})", "{p}.numel()", "{p}.element_size()", "{p}.is_floating_point()", "{p}._is_view()",
        "{p}._base is None", "{p}.grad_fn is None", "{p}.T.shape", "{p}.is_inference()", "{p}.detach() + {q}", "getattr({p}, 'tag', 4)", "{p}.untyped_storage().data_ptr() == {q}.untyped_storage().data_ptr()",
        "{p}.is_set_to({q})", "{p}.view(-1)", "{p}[0]", "{p}.size()", "{p}.output_nr", "{p}.retains_grad", "torch.equal({p}, {q})", "{p}.data", "{p}.is_conj()", "torch.is_tensor({p})", "torch.promote_types({p}.dtype, {q}.dtype)",
        "torch.is_same_size({p}, {q})", "{p}.add(1)", "torch.sin({p})", "len({p}._backward_hooks or ())", "{p}.is_sparse", "{p}.to(torch.float64).dtype", "{p}.new_zeros(2)", "{p}.__dict__",
    ),
    "list": ("{p}[0]", "{p}[-1]", "len({p})", "list({p})", "sum({p})", "{v} in {p}", "{p} == {q}", "{p}[:2]", "{p}.index({v})", "[y for y in {p}]", "sorted({p})", "{p} + [1]", "tuple({p})", "next(iter({p}))", "list(reversed({p}))",
             "[*{p}, 1]", "list(enumerate({p}))", "list(zip({p}, {p}))", "{p}.count({v})", "any({p})", "max({p})"),
    "dict": ("{p}[{k}]", "{p}.get({k}, 7)", "{k} in {p}", "len({p})", "list({p})", "next(iter({p}))", "{p} == {q}", "list({p}.values())", "list({p}.items())", "{{**{p}}}", "dict({p})", "list({p}.items())[-1]", "sorted({p}, key=str)",
             "[y for y in {p}]", "{p} | {{1: 2}}", "{p}.keys() == {q}.keys()", "list(reversed({p}))", "{p}.copy()"),
    "set": ("{v} in {p}", "len({p})", "sorted({p}, key=str)", "{p} == {q}", "{p} | {{1}}", "{p} & {{1, 2}}", "{p}.issubset({{1, 2, 3}})", "max({p}, default=2)"),
    "object": (
        "{p}.{n}", "{p}.{n}", "{p}.{n}", "{p}.{n}()", "{p}.m()", "len({p})", "{p}()", "{p}[0]", "{v} in {p}", "list({p})", "{p} + 1", "1 + {p}", "type({p}) is {c}", "type({p}).{n}", "{p} < {q}", "{p} <= 2", "int({p})", "float({p})",
        "{{{p}: 1}}.get({q}, 2)", "super(type({p}), {p}).{n}", "sorted(vars({p}))", "{p}.__dict__", "str({p})", 'f"{{{p}}}"', "-{p}", "operator.index({p})", "[1, 2, 3][{p}]", "hash({p}) == 3", "{p}.{n} is {q}", "dir({p})[-1]",
        "enters({p})", "next(iter({p}))", "{p}.__class__.__name__", "type({p}).__mro__[1].__name__", "round({p})", "abs({p})", "{p} != {q}", "hasattr({p}, '__len__')", "hasattr({p}, '__dict__')", "{p} in [{q}]",
        "{{{p}}} == {{{q}}}", "{p}.m.__name__", "{p}.m.__self__ is {p}", "{p}.m == {q}.m", "{p}.__doc__", "{p}.__module__", "isinstance({p}, collections.abc.Sized)", "isinstance({p}, Marked)", "isinstance({p}, Quacks)",
    ),
    "class": ("{p}.{n}", "{p}.{n}", "{p}.__name__", "issubclass({p}, {c})", "{p}() is None", "{p}.__mro__[1].__name__", "{p}.__bases__[0].__name__", "{p}[1]", "{p}.{n}()", "len({p})", "list({p})", "isinstance({q}, {p})", "{p}.__base__.__name__",
              "{p}.__dict__.get('{n}')", "'{n}' in vars({p})", "{p}.__doc__", "{p}.__qualname__", "{p}.__annotations__", "bool({p})", "type({p}).{n}", "{p}.__subclasses__() == []", "{{{p}: 1}}[{p}]", "issubclass({p}, Marked)",
              "{p}.__module__", "{p}.__hash__ is object.__hash__", "{p}.__init__ is object.__init__", "hasattr({p}, '__abstractmethods__')", "{p} == {c}", "{p}.mro()[1] is {c}", "{p} in ({c}, int)"),
    "function": ("{p}()", "{p}(2)", "{p}(k=3)", "{p}.__name__", "{p}.__defaults__", "{p}.__kwdefaults__", "{p}.tag", "getattr({p}, 'tag', 5)", "{p}.__code__.co_name", "{p}.__closure__[0].cell_contents", "{p}.__doc__", "{p}.__module__",
                 "{p}.__qualname__", "{p}.__dict__", "{p}.__annotations__", "{p}.__code__ is {q}.__code__", "{p}.__globals__['K']", "{p}.__get__(3)()", "{p}.__wrapped__(1)", "vars({p})", "list(map({p}, [1, 2]))", "{p}.__code__.co_argcount",
                 "{p}.__annotations__.get('n')", "{p}.__kwdefaults__['k']", "{p}.__defaults__[0]", "{p}.__call__(1)"),
    "partial": ("{p}()", "{p}(2)", "{p}(k=4)", "{p}.args", "{p}.keywords", "{p}.keywords.get('k', 3)", "{p}.func", "{p}.func.__name__", "{p}.func is {q}", "len({p}.args)", "{p}.tag", "{p}.__dict__"),
    "method": ("{p}()", "{p}.__self__", "{p}.__func__", "{p}.__name__", "{p} == {q}", "{p}.__func__ is {q}", "{p}.__self__.{n}", "{p}.tag", "{p}.__doc__"),
    "module": ("{p}.{n}", "{p}.{n}", "{p}.__name__", "{p}.{n}()", "hasattr({p}, '{n}')", "sorted(k for k in vars({p}) if k[0] != '_')", "{p}.__dict__['{n}']", "getattr({p}, '{n}', 5)", "{p}.__class__.__name__", "'{n}' in dir({p})"),
    "enum": ("{p}.A", "{p}.A.value", "{p}['A']", "{p}(1)", "len({p})", "[e.name for e in {p}]", "{p}.A is {p}.B", "{p}.A.{n}", "{p}.B.name", "{p}.{n}", "{p}.A == 1", "{p}.A in {p}", "{p}.A.twice()", "{p}.A._value_", "{p}.__members__['A']", "{{{p}.A: 2}}[{p}.B]",
             "isinstance({p}.A, int)", "hash({p}.A) == hash({p}.B)", "str({p}.A)", "{p}.B.value + 1", "list({p})[0].value", "{p}.A.value in (1, 2)"),
    "tuple": ("{p}[0]", "{p}.a", "{p}.b", "len({p})", "{p} == {q}", "{p}._fields", "[*{p}]", "{p}._replace(a=1)", "{p}.m()", "{p} + (1,)", "sum({p})", "{p}[-1]", "{v} in {p}", "hash({p}) == hash({q})", "{p}.c", "max({p})", "{p} < {q}"),
    "data": ("{p}.a", "{p}.b", "{p} == {q}", "dataclasses.asdict({p})", "dataclasses.replace({p}, a=1)", "len(dataclasses.fields({p}))", "{p}.__dataclass_fields__['a'].name", "hash({p}) == hash({q})", "{p}.c"),
    "weak": ("{p}() is None", "{p}()", "{p}().{n}", "{p}() is {q}", "type({p}())", "{p} == {q}", "{p}.__callback__"),
    "weakdict": ("len({p})", "list({p}.values())", "{p}.get({k}, 3)", "{k} in {p}", "{p}[{k}]", "[y for y in {p}]"),
    "context": ("{p}.get()", "{p}.get(3)", "{p}.name", "{p}.get() is {q}"),
    "nn": ("{p}(torch.ones(2, 3))", "{p}(torch.ones(2, 3))", "{p}.training", "{p}.w", "{p}.buf", "{p}.sub", "len(list({p}.parameters()))", "[k for k, y in {p}.named_parameters()]", "[k for k, y in {p}.named_modules()]", "{p}.items_[0](torch.ones(2))", "len({p}.items_)",
           "{p}.named['a'](torch.ones(2))", "list({p}.named)", "{p}.w.requires_grad", "{p}.scale", "{p}.{n}", "hasattr({p}, '{n}')", "list({p}._buffers)", "list({p}.state_dict())", "{p}.get_submodule('items_.0')", "{p}._modules['sub']", "[type(y).__name__ for y in {p}.children()]",
           "{p}.w is {q}.w", "{p}.sub.training", "{p}.forward.__name__", "{p}.get_parameter('w')", "[y.training for y in {p}.modules()]", "{p}.extra_repr()", "{p}.buf.dtype", "{p}.w.dtype", "len(dict({p}.named_buffers()))", "{p}.sub is {q}.sub"),
    "cached": ("{p}(1)", "{p}(2)", "{p}()", "{p}.__wrapped__(1)", "{p}.tag", "{p}.cache_info().hits", "{p}.__name__", "{p}.__dict__"),
    "dispatch": ("{p}(1)", "{p}('a')", "{p}({q})", "{p}.dispatch(int)(1)", "len({p}.registry)", "{p}(2.5)"),
    "getter": ("{p}({q})", "{p}"),
    "chain": ("{p}[{k}]", "{p}.get({k}, 4)", "{k} in {p}", "len({p})", "list({p})", "{p}.maps[0]", "{p}.parents.get({k})", "list({p}.items())"),
    "proxy": ("{p}[{k}]", "{p}.get({k}, 4)", "{k} in {p}", "len({p})", "list({p})", "list({p}.items())", "{p} == {q}", "dict({p})"),
    "deque": ("{p}[0]", "len({p})", "list({p})", "{p}[-1]", "{v} in {p}", "{p}.maxlen", "{p} == {q}", "sum({p})"),
    "number": ("{p}", "{p} + 1", "1 + {p}", "{p} * 2", "{p} == {q}", "{p}.{n}", "type({p}).{n}", "hash({p}) == hash({v})", "[1, 2, 3, 4, 5, 6][{p}]", "{{1: 'a', 2: 'b'}}.get({p})", "bool({p})", "str({p})", "{p} < 3", "-{p}", "{p}.m()", "int({p})"),
    "error": ("{p}.args", "{p}.args[0]", "{p}.{n}", "str({p})", "{p}.__cause__", "{p}.__context__", "{p}.__traceback__ is None", "isinstance({p}, LookupError)", "{p}.__notes__", "raises({p})", "repr({p})", "{p}.__suppress_context__"),
    "space": ("{p}.{n}", "{p}.{n}", "{p} == {q}", "vars({p})", "hasattr({p}, '{n}')", "sorted({p}.__dict__)", "getattr({p}, '{n}', 5)"),
    "array": ("{p}[0]", "{p}.sum() + 1", "{p}.shape", "{p}.dtype == 'float64'", "{p} * 2", "len({p})", "{p}.ndim", "torch.from_numpy({p})", "{p}.strides"),
    "iterator": ("next({p}, 9)", "{p}", "next({p}, 9)", "[*{p}]", "{p}.send({e})"),
}  # fmt: skip

# In place: the thing stays the same object.
CHANGES = {
    "leaf": (),
    "tensor": ("{p}.add_(1)", "{p}.data = {t}", "{p}.data = {p}.data.clone()", "{p}.requires_grad_(not {p}.requires_grad)", "{p}.grad = torch.ones_like({p})", "{p}.grad = None", "{p}.tag = {v}", "del {p}.tag", "{p}.t_()",
               "{p}.set_({t})", "{p}.retain_grad()", "{p}.data.add_(2)", "{p}.detach_()", "{p}.transpose_(0, -1)", "{p}.grad = {t}", "{p}.data = {p}.data.double()", "{p}.data = {q}.data", "{p}.unsqueeze_(0)", "{p}.squeeze_()",
               "{p}.register_hook(double)", "{p}.set_({p}.clone())", "{p}.grad.zero_()", "{p}.m = {v}"),
    "list": ("{p}.append({v})", "{p}.pop()", "{p}.insert(0, {v})", "{p}.clear()", "{p}.reverse()", "del {p}[0]", "{p}[:] = [1, {v}]", "{p}[0] = {v}", "{p}[0] = {q}", "{p}.append({q})", "{p} += [2]", "{p}[0], {p}[-1] = {p}[-1], {p}[0]", "{p}.extend({p})",
             "{p}[0] = {t}"),
    "dict": ("{p}[{k}] = {v}", "{p}[{k}] = {q}", "{p}.pop({k}, None)", "{p}[{k}] = {p}.pop({k})", "{p}.clear()", "{p}.update({{{k}: {v}}})", "reorder({p})", "{p}.move_to_end({k})", "{p}.default_factory = lambda: {v}", "{p}.default_factory = None",
             "refill({p})", "del {p}[{k}]", "{p}.setdefault({k}, {v})", "{p}.popitem()", "{p}.__class__ = {c}"),
    "set": ("{p}.add({v})", "{p}.discard({v})", "{p}.clear()", "{p}.update([1, 2])"),
    "object": ("{p}.{n} = {v}", "{p}.{n} = {q}", "{p}.{n} = {t}", "del {p}.{n}", "{p}.__class__ = {c}", "{p}.__dict__ = {{'a': {v}}}", "{p}.__dict__['{n}'] = {v}", "{p}.__dict__.clear()", "{p}.{n} = lambda: {v}", "vars({p}).pop('{n}')", "{p}.__dict__ = dict({p}.__dict__)",
               "object.__setattr__({p}, '{n}', {v})", "{p}.__dict__ = {q}.__dict__", "{p}.__class__ = {q}.__class__"),
    "class": (),
    "function": ("{p}.__defaults__ = ({v},) * bool({p}.__code__.co_argcount)", "{p}.__defaults__ = None", "{p}.__kwdefaults__ = {{'k': {v}}}", "{p}.__kwdefaults__['k'] = {v}", "{p}.__kwdefaults__ = None", "{p}.tag = {v}", "del {p}.tag", "{p}.__name__ = 'ab'", "{p}.__name__ = 'other'",
                 "{p}.__code__ = (lambda n=1, *, k=2: n + k + {v}).__code__", "{p}.__closure__[0].cell_contents = {v}", "{p}.__doc__ = 'a longer text'", "{p}.__dict__['tag'] = {v}", "{p}.__annotations__ = {{'n': {v}}}", "{p}.__annotations__['n'] = {v}",
                 "{p}.__wrapped__ = {q}", "{p}.__code__ = {q}.__code__", "{p}.__qualname__ = 'ab'", "{p}.__dict__ = {{'tag': {v}}}", "del {p}.__closure__[0].cell_contents", "{p}.__code__ = {p}.__code__.replace(co_name='ab')"),
    "partial": ("{p}.keywords['k'] = {v}", "{p}.keywords.clear()", "{p}.__setstate__(({p}.func, ({v},), {{}}, None))", "if {q} is not {p}: {p}.__setstate__(({q}, ({v},), {{'k': 2}}, None))", "{p}.tag = {v}", "{p}.__setstate__(({p}.func, {p}.args, {{'k': {v}}}, {{}}))"),
    "method": ("{p}.__func__.tag = {v}", "{p}.__self__.a = {v}", "{p}.__func__.__defaults__ = ({v},)", "{p}.__func__.__code__ = (lambda self, n=1, *, k=2: {v}).__code__", "{p}.__self__.__class__ = {c}"),
    "module": ("{p}.{n} = {v}", "{p}.{n} = {q}", "del {p}.{n}", "{p}.__getattr__ = lambda name: {v}", "del {p}.__getattr__", "{p}.__class__ = Lazy", "{p}.__class__ = types.ModuleType", "{p}.__dict__.pop('{n}')", "{p}.__class__ = Computes", "{p}.__name__ = 'ab'", "{p}.{n} = lambda: {v}"),
    "enum": ("{p}.A._value_ = {v}", "{p}.A.{n} = {v}", "{p}.{n} = {v}", "{p}.twice = lambda self: {v}", "del {p}.{n}", "{p}.B.__dict__['{n}'] = {v}", "{p}.A._name_ = 'ab'", "{p}._member_map_['A'] = {p}.B", "{p}._value2member_map_[1] = {p}.B", "{p}._member_names_.reverse()",
             "type.__setattr__({p}, 'A', {p}.B)", "{p}.A.__class__.m = {v}", "{p}.__hash__ = lambda self: 3", "{p}.__str__ = lambda self: 'ab'", "{p}.__eq__ = lambda self, o: True"),
    # Never a length above the tuple's own: PyTorch, whose errors describe arguments, reads as many of its items.
    "tuple": ("type({p}).m = lambda self: {v}", "type({p}).{n} = {v}", "type({p}).{n} = property(lambda self: {v})", "type({p}).__getitem__ = lambda self, i: {v}", "type({p}).__len__ = lambda self: 1", "type({p}).__eq__ = lambda self, o: True", "{p}.c = {v}",
              "type({p})._fields = ('a',)", "type({p}).__iter__ = lambda self: iter([{v}])", "type({p}).__contains__ = lambda self, o: {v}"),
    "data": ("{p}.a = {v}", "{p}.b = {q}", "object.__setattr__({p}, 'a', {v})", "type({p}).a = {v}", "type({p}).__eq__ = lambda self, o: {v}", "type({p}).c = {v}", "type({p}).b = property(lambda self: {v})", "type({p}).__hash__ = lambda self: {v}"),
    "weak": (),
    "weakdict": ("{p}[{k}] = {q}", "{p}.pop({k}, None)", "{p}.clear()"),
    "context": ("{p}.set({v})", "{p}.set({q})", "{p}.set({t})"),
    "nn": ("{p}.eval()", "{p}.train()", "{p}.training = {v}", "{p}.w = torch.nn.Parameter({t}.float())", "{p}.buf = {t}", "{p}.sub = torch.nn.Tanh()", "{p}.sub = torch.nn.Identity()", "del {p}.sub", "{p}.register_forward_hook(lambda m, i, o: o + {v})",
           "{p}.register_forward_pre_hook(lambda m, i: (i[0] + {v},))", "{p}._forward_hooks.clear()", "{p}._forward_pre_hooks.clear()", "{p}.forward = lambda y: y + {v}", "del {p}.forward", "{p}.scale = {v}", "{p}.items_.append(torch.nn.Tanh())",
           "{p}.items_[0] = torch.nn.Identity()", "{p}.named['a'] = torch.nn.Sigmoid()", "{p}.named['b'] = torch.nn.Tanh()", "del {p}.named['a']", "{p}.requires_grad_(not {p}.w.requires_grad)", "{p}.double()", "{p}.float()", "{p}.buf = None",
           "{p}.register_buffer('{n}', {t})", "{p}.__dict__['w'] = {t}", "{p}._parameters['w'] = None", "{p}._buffers['buf'] = {t}", "{p}._modules['sub'] = {p}.items_[0]", "{p}.__class__ = Other", "type({p}).forward = lambda self, y: y * {v}", "{p}.sub.eval()",
           "{p}.items_.insert(0, torch.nn.ReLU())", "{p}.register_parameter('{n}', torch.nn.Parameter({t}.float()))", "{p}.load_state_dict(Net().state_dict())", "{p}._call_impl = lambda y: y - {v}", "{p}.__dict__['sub'] = torch.neg", "{p}.w.data = torch.ones(2, 3).double()",
           "{p}.sub = {q}.sub", "{p}.w = {q}.w", "{p}.zero_grad()", "{p}.w.grad = torch.ones(2, 3)", "{p}._non_persistent_buffers_set.add('buf')", "type({p}).__call__ = lambda self, y: y + {v}", "del type({p}).__call__", "{p}.__dict__['_buffers'] = {{'buf': {t}}}",
           "{p}._modules = dict(reversed({p}._modules.items()))", "{p}.items_.__class__ = torch.nn.Sequential", "{p}.register_full_backward_hook(lambda m, i, o: None)"),
    "cached": ("{p}.cache_clear()", "{p}.tag = {v}", "{p}(5)", "{p}.__wrapped__ = {q}", "{p}.__wrapped__.__defaults__ = ({v},)", "{p}.__name__ = 'ab'"),
    "dispatch": ("{p}.register(int, lambda y: {v})", "{p}.register(str, lambda y: {v})", "{p}.register({c}, lambda y: {v})", "{p}.register(object, lambda y: {v})"),
    "getter": (),
    "chain": ("{p}[{k}] = {v}", "{p}.maps[-1][{k}] = {v}", "{p}.maps.reverse()", "{p}.maps.append({{{k}: {v}}})", "{p}.maps[0].clear()", "{p}.pop({k}, None)"),
    "proxy": ("{p}_.update({{{k}: {v}}})", "{p}_.pop({k}, None)", "reorder({p}_)", "{p}_[{k}] = {q}"),
    "deque": ("{p}.append({v})", "{p}.popleft()", "{p}.rotate(1)", "{p}.appendleft({q})", "{p}[0] = {v}", "{p}.clear()"),
    "number": ("{p}.{n} = {v}", "type({p}).{n} = {v}", "type({p}).__add__ = lambda self, o: {v}", "type({p}).__hash__ = lambda self: 1", "type({p}).__eq__ = lambda self, o: {v}", "type({p}).m = lambda self: {v}", "type({p}).__bool__ = lambda self: {v}", "type({p}).__index__ = lambda self: 1",
               "type({p}).__str__ = lambda self: 'ab'", "del type({p}).__add__", "del type({p}).__eq__", "type({p}).__lt__ = lambda self, o: {v}", "type({p}).__radd__ = lambda self, o: {v}", "type({p}).__int__ = lambda self: 4"),
    "error": ("{p}.args = ({v},)", "{p}.{n} = {v}", "{p}.__cause__ = ValueError({v})", "{p}.add_note('ab')", "{p}.__class__ = Fault", "{p}.__context__ = KeyError(1)", "{p}.__notes__ = []", "{p}.__suppress_context__ = True"),
    "space": ("{p}.{n} = {v}", "{p}.{n} = {q}", "del {p}.{n}", "{p}.__dict__.clear()", "{p}.__dict__['{n}'] = {t}", "{p}.{n} = {t}"),
    "array": ("{p}[0] = {v}", "{p}.shape = (-1, 1)", "{p} += 1"),
    "iterator": ("next({p}, None)", "{p}.close()", "{p}.send({v})"),
}  # fmt: skip

# What f may do to a thing.
WRITES = {
    "tensor": ("{p}.grad = None", "{p}.tag = {v}", "{p}.data = {p}.data + 1", "{p}.requires_grad_(True)"),
    "list": ("{p}.append({e})", "{p}[0] = {e}", "{p}.insert(0, {v})", "del {p}[-1]", "{p}.pop()", "{p}.reverse()", "{p}[:] = [{v}]"),
    "dict": ("{p}[{k}] = {e}", "{p}.pop({k}, None)", "{p}.update(a={v})", "{p}.setdefault({k}, {e})", "del {p}[{k}]"),
    "set": ("{p}.add({v})", "{p}.discard({v})"),
    "object": ("{p}.{n} = {e}", "{p}.{n} = {v}", "del {p}.{n}", "setattr({p}, '{n}', {e})", "{p}.{n} += 1", "{p}.__dict__['{n}'] = {e}"),
    "class": ("{p}.{n} = {v}", "{p}.{n} = {e}"),
    "function": ("{p}.tag = {e}",),
    "module": ("{p}.{n} = {e}",),
    "context": ("{p}.set({e})",),
    "nn": ("{p}.scale = {v}", "{p}.buf = x * 2", "{p}.buf.add_(1)", "{p}.training = {v}"),
    "space": ("{p}.{n} = {e}", "del {p}.{n}"),
    "deque": ("{p}.append({e})", "{p}.popleft()"),
    "data": ("{p}.a = {e}",),
    "error": ("{p}.{n} = {v}", "{p}.args = ({v},)"),
    "chain": ("{p}[{k}] = {e}",),
}  # fmt: skip
