"""A graph break between any two statements changes nothing: the language cases again, with a break put in after each of them.

The breaks go in by rewriting the case's source, nested functions, comprehensions' surroundings and handlers included.
"""

import ast
import copy
import inspect
import textwrap

import language_calls_test
import language_containers_test
import language_objects_test
import language_tensors_test
import pytest
from cases import P
from harness import outcome, same

import braze


class Breaks(ast.NodeTransformer):
    """Puts braze.graph_break() after the statements whose number is in `wanted` (None: all)."""

    def __init__(self, wanted=None):
        self.wanted, self.seen = wanted, 0

    def generic_visit(self, node):
        super().generic_visit(node)
        if isinstance(node, ast.ClassDef):
            return node
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if not isinstance(body, list) or isinstance(node, ast.Module):
                continue
            out = []
            for s in body:
                number, self.seen = self.seen, self.seen + 1
                take = (self.wanted is None or number in self.wanted) and not isinstance(s, (ast.Nonlocal, ast.Global))
                call = ast.copy_location(ast.parse("braze.graph_break()").body[0], s)
                if take:
                    out.append(ast.fix_missing_locations(call))
                out.append(s)
            setattr(node, field, out)
        return node


def through(value):
    braze.graph_break()
    return value


class BreaksInExpressions(ast.NodeTransformer):
    """Makes values of calls, operators, attributes and items go through a function that breaks."""

    def __init__(self, wanted=None):
        self.wanted, self.seen = wanted, 0

    def visit(self, node):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            node.args.defaults = [self.visit(d) for d in node.args.defaults]
            if isinstance(node, ast.Lambda):
                node.body = self.visit(node.body)
            else:
                node.body = [self.visit(b) for b in node.body]
            return node
        if isinstance(node, (ast.ClassDef, ast.match_case, ast.JoinedStr)):
            return node
        callee = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
        self.generic_visit(node)
        if not isinstance(node, (ast.Call, ast.BinOp, ast.Attribute, ast.Subscript, ast.Compare)) or callee:
            return node
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return node
        number, self.seen = self.seen, self.seen + 1
        if self.wanted is not None and number not in self.wanted:
            return node
        return ast.copy_location(ast.Call(ast.Name("through", ast.Load()), [node], []), node)


def with_breaks(fn, wanted=None, kind=Breaks):
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    tree.body[0].decorator_list = []
    breaks = kind(wanted)
    tree = ast.fix_missing_locations(breaks.visit(tree))
    space = dict(fn.__globals__, braze=braze, through=through)
    exec(compile(tree, f"<{fn.__name__} with breaks>", "exec"), space)
    made = space[fn.__name__]
    made.__defaults__, made.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
    return made, breaks.seen


def compare(fn, broken, args, kw):
    compiled = braze.compile(broken, backend="eager")
    for call in range(2):
        (want_args, want_kw), (got_args, got_kw) = copy.deepcopy((args, kw)), copy.deepcopy((args, kw))
        want, got = outcome(fn, want_args, want_kw), outcome(compiled, got_args, got_kw)
        assert want[0] == got[0], f"call {call}: {got}, expected {want}"
        same(want[1], got[1], f"call {call}: result")
        same(want_args, got_args, f"call {call}: arguments")


def arguments(case):
    fn, args, kw = case
    kw = {k: v for k, v in kw.items() if k not in ("graphs", "calls", "tol")}
    return fn, [a.make() if isinstance(a, P) else a for a in args], kw


LANGUAGE = [language_calls_test, language_containers_test, language_objects_test, language_tensors_test]
CASES = [c for module in LANGUAGE for c in module.case if c.values[0].__closure__ is None]


@pytest.mark.parametrize("case", [pytest.param(c.values) for c in CASES], ids=[c.id for c in CASES])
def test_breaks_everywhere(case):
    fn, args, kw = arguments(case)
    compare(fn, with_breaks(fn)[0], args, kw)


@pytest.mark.parametrize("case", [pytest.param(c.values) for c in CASES], ids=[c.id for c in CASES])
def test_one_break_at_each_place(case):
    fn, args, kw = arguments(case)
    for place in range(with_breaks(fn, ())[1]):
        compare(fn, with_breaks(fn, {place})[0], args, kw)


@pytest.mark.parametrize("case", [pytest.param(c.values) for c in CASES], ids=[c.id for c in CASES])
def test_breaks_in_all_expressions(case):
    fn, args, kw = arguments(case)
    compare(fn, with_breaks(fn, kind=BreaksInExpressions)[0], args, kw)


@pytest.mark.parametrize("case", [pytest.param(c.values) for c in CASES], ids=[c.id for c in CASES])
def test_one_break_in_each_expression(case):
    fn, args, kw = arguments(case)
    for place in range(with_breaks(fn, (), BreaksInExpressions)[1]):
        compare(fn, with_breaks(fn, {place}, BreaksInExpressions)[0], args, kw)
