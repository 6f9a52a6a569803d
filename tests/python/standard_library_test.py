"""What the standard library's C code keeps, checks and shows, where the capture goes on in its place."""

import collections
import enum
import itertools
import operator
import os
import queue
import re
import sys
import threading

import pytest
import torch
from harness import outcome, same

import braze


def capture(f, *args):
    return braze.compile(f, backend="eager")(*args)


def test_iterators_that_read_at_once_across_a_break():
    def f(xs):
        pools = itertools.product(xs, repeat=2), itertools.combinations(xs, 2), itertools.permutations(xs, 2)
        more = itertools.combinations_with_replacement(xs, 2)
        xs.append(5)
        braze.graph_break()
        return [list(p) for p in (*pools, more)], xs

    assert capture(f, [1, 2]) == f([1, 2])


def test_iterators_made_of_iterators_that_they_use_up():
    def f(xs):
        it = iter(xs)
        all_pairs, groups = itertools.permutations(it, 2), itertools.groupby(iter(xs))
        braze.graph_break()
        return list(all_pairs), [(k, list(g)) for k, g in groups], list(it)

    assert capture(f, [1, 1, 2]) == f([1, 1, 2])


def test_a_product_of_iterators_that_is_too_long_to_follow():
    def f(*sizes):
        return len(list(itertools.product(*map(iter, [range(n) for n in sizes]))))

    assert capture(f, 13, 11, 7, 4) == 13 * 11 * 7 * 4


def test_a_pair_of_neighbours_whose_source_asks_for_it():
    def f(limit):
        class Source:
            count = 0

            def __iter__(self):
                return self

            def __next__(self):
                if self.count >= limit:
                    raise StopIteration
                self.count += 1
                return next(pairs, None) if self.count == 1 else [self.count]

        pairs = itertools.pairwise(Source())
        return list(pairs)

    assert [capture(f, n) for n in range(6)] == [f(n) for n in range(6)]


class Kept:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.exception = value.with_traceback(None)
        return True


def test_fields_of_an_exception_that_c_code_raised():
    def f(pattern):
        with Kept() as kept:
            re.compile(pattern)
        return kept.exception.msg, kept.exception.pos, kept.exception.pattern, str(kept.exception)

    assert capture(f, "(a") == f("(a")


def test_exceptions_that_their_init_fills():
    def f():
        return SyntaxError("wrong"), UnicodeDecodeError("utf8", b"abc", 1, 2, "why"), ImportError("gone", name="there")

    for got, want in zip(capture(f), f(), strict=True):
        assert repr(got) == repr(want) and str(got) == str(want)
    assert capture(f)[1].start == 1 and capture(f)[0].msg == "wrong" and capture(f)[2].name == "there"


def test_patterns_print_themselves_each_time(capsys):
    def f():
        return re.compile("a+b", re.DEBUG).pattern

    f()
    want = capsys.readouterr().out
    compiled = braze.compile(f, backend="eager")
    for _ in range(2):
        re.purge()
        compiled()
        assert capsys.readouterr().out == want


def test_locks_that_are_held_are_seen():
    def f(lock):
        return lock.acquire(False), lock.locked()

    lock = threading.Lock()
    compiled = braze.compile(f, backend="eager")
    for _ in range(2):
        assert compiled(lock) == (True, True)
        assert compiled(lock) == (False, True)
        lock.release()


def test_printing_to_what_is_no_file():
    def f():
        print("", file="")

    with pytest.raises(AttributeError, match="write"):
        capture(f)


class Guarded:
    def __init__(self):
        self.items = collections.deque()
        self.lock = threading.Lock()

    def __enter__(self):
        return self.lock.__enter__()

    def __exit__(self, *args):
        return self.lock.__exit__(*args)

    def put(self, x):
        with self:
            self.items.append(x)


def test_what_the_interpreter_puts_into_a_deque_is_seen():
    def f(q):
        q.put(1)
        before = list(q.items), len(q.items)
        with q.lock:
            braze.graph_break()
        return before

    assert capture(f, Guarded()) == ([1], 1)


def test_a_queue_after_a_wait():
    def f():
        q = queue.Queue(2)
        q.put(1)
        q.put(2)
        if (first := [q.get(), q.get()]) != [1, 2]:
            return first
        q.put(3, timeout=0.01)
        return first, list(q.queue)

    assert capture(f) == ([1, 2], [3])


def test_an_exception_that_holds_itself():
    class Holds:
        def __index__(self):
            error = ValueError("held")
            error.own = error
            raise error

    def f(x):
        with Kept() as kept:
            operator.index(x)
        return kept.exception.own is kept.exception

    assert capture(f, Holds())


def test_replacing_with_a_count_beyond_a_machine_word():
    def f():
        with Kept() as kept:
            re.sub("a", "b", "aa", 1 << 70)
        return type(kept.exception)

    assert capture(f) is f()


class Asked:
    """An iterable that says how long it is, as `answer` has it."""

    def __init__(self, log, answer):
        self.log, self.answer = log, answer

    def told(self, how):
        self.log.append(how)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class WithLength(Asked):
    def __len__(self):
        return self.told("len")

    def __iter__(self):
        self.log.append("iter")
        return iter((1, 2, 3))


class ByNumber(Asked):
    def __len__(self):
        return self.told("len")

    def __getitem__(self, i):
        return (1, 2, 3)[i]


class WithHint(Asked):
    def __length_hint__(self):
        return self.told("hint")

    def __iter__(self):
        self.log.append("iter")
        return self

    def __next__(self):
        self.log.append("next")
        if self.log.count("next") > 3:
            raise StopIteration
        return self.log.count("next")


class Triple(tuple):
    pass


READERS = {
    "list": list,
    "tuple": tuple,
    "own_tuple": Triple,
    "sorted": sorted,
    "extend": lambda o: [0].extend(o),
    "in_place": lambda o: [0].__iadd__(o),
    "init": lambda o: [0].__init__(o),
    "slice": lambda o: [0].__setitem__(slice(0, 1), o),
    "star": lambda o: [*o],
    "star_after": lambda o: (0, *o),
    "arguments": lambda o: max(*o),
    "rest": lambda o: [(a, b) for a, *b in [o]],
    "ends": lambda o: [(a, b, c) for a, *b, c in [o]],
    "unpacked": lambda o: [a + b + c for a, b, c in [o]],
    "join": lambda o: ",".join(o),
    "set": set,
    "deque": collections.deque,
    "comprehension": lambda o: [i for i in o],
    "iterator": lambda o: list(iter(o)),
}


@pytest.mark.parametrize("answer", [3, 0, -1, "3", NotImplemented, ValueError("no"), TypeError("no")], ids=repr)
@pytest.mark.parametrize("cls", [WithLength, ByNumber, WithHint])
@pytest.mark.parametrize("read", READERS)
def test_an_iterable_is_asked_for_its_length(read, cls, answer):
    def f(log):
        return READERS[read](cls(log, answer)), torch.ones(1) + 1

    compiled = braze.compile(f)
    for _ in range(2):
        eager, log = [], []
        want, got = outcome(f, (eager,), {}), outcome(compiled, (log,), {})
        assert want[0] == got[0] and eager == log, (want, got, eager, log)
        same(want[1], got[1]) if want[0] == "returned" else None
        assert want[0] == "returned" or want[1] == got[1], (want, got)


class Colour(enum.Enum):
    RED = 1
    GREEN = 2

    @classmethod
    def _missing_(cls, value):
        asked.append(value)
        if value == "error":
            raise KeyError(value)
        return {"g": cls.GREEN, "other": 7}.get(value)


asked = []


@pytest.mark.parametrize("value", [1, 2, "g", "other", "error", 77, []], ids=repr)
def test_what_an_enum_makes_of_unknown_values(value):
    def f(x):
        return Colour(value), x + 1

    compiled = braze.compile(f)
    for _ in range(3):
        asked.clear()
        want, before = outcome(f, (torch.ones(1),), {}), list(asked)
        asked.clear()
        got = outcome(compiled, (torch.ones(1),), {})
        assert asked == before and want[0] == got[0], (asked, before, want, got)
        assert str(want[1]) == str(got[1])


def test_flags_that_are_made_when_they_are_asked_for():
    def f(n):
        class Permission(enum.IntFlag):
            READ = 1
            WRITE = 2

        return Permission(n).value, (Permission.READ | Permission(40)).value, len(Permission)

    compiled = braze.compile(f)
    for n in (42, 42, 3, 8):
        assert compiled(n) == f(n)


def test_exceptions_that_are_initialised_again():
    def f():
        seen = []
        for e in (ImportError("a", name="b"), StopIteration(5), SystemExit(1, 2), OSError(2, "no"), ValueError("v")):
            for change in (lambda: None, e.__init__, lambda: e.__init__(7), lambda: setattr(e, "args", (9,))):
                change()
                seen.append([e.args, str(e), *[getattr(e, n, None) for n in ("msg", "name", "value", "code", "errno")]])
        return seen

    assert capture(f) == f()


def test_slots_of_another_class_and_by_another_name():
    class Owner:
        __slots__ = ("slot",)

    class Borrower:
        borrowed = Owner.slot

    class Twice(Owner):
        other = Owner.slot

    def f():
        raised = []
        o = Borrower()
        for act in (lambda: o.borrowed, lambda: setattr(o, "borrowed", 1), lambda: delattr(o, "borrowed")):
            try:
                act()
            except TypeError as e:
                raised.append(str(e))
        twice = Twice()
        twice.other = 3
        return raised, twice.slot, twice

    (want, *_), (got, slot, twice) = f(), capture(f)
    assert want == got and slot == 3 and twice.other == 3


def test_a_metaclass_that_looks_attributes_up():
    class Meta(type):
        def __getattribute__(cls, name):
            if name == "missing":
                raise AttributeError(name)
            return name + "!"

        def __getattr__(cls, name):
            return name + "?"

    class Class(metaclass=Meta):
        attribute = False

    def f():
        return Class.attribute, Class.missing, Class.other

    assert capture(f) == f() == ("attribute!", "missing?", "other!")


def test_globals_of_a_class_of_their_own():
    class Globals(dict):
        def __missing__(self, key):
            return len(key)

    def f(x):
        return eval("lambda x: x + one + three", Globals())(x)

    assert capture(f, 1) == f(1) == 9


def test_a_sum_of_floats_is_the_interpreters():
    def f(a, b):
        return sum([0.1] * 10), sum([1e16, 1.0, -1e16]), sum((a, b, 0.1, -a)), sum([0.1, 2, True], 0.5), sum(iter([a]))

    compiled = braze.compile(f)
    for a, b in ((0.1, 0.2), (1e16, 1.0), (0.3, 1e-17), (2.5, 3.5)):
        assert compiled(a, b) == f(a, b)


def test_a_tracer_does_not_see_the_capture():
    seen = []

    def tracer(frame, event, argument):
        seen.append(frame.f_code.co_filename)
        return tracer

    def f(x):
        y = x + 1
        braze.graph_break()
        return y * 2

    compiled = braze.compile(f)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        compiled(torch.ones(2))
    finally:
        sys.settrace(before)
    assert {os.path.basename(name) for name in seen} <= {os.path.basename(__file__), "_api.py"}


def test_a_queue_between_threads_while_it_is_captured():
    def put(q, n):
        for i in range(n):
            q.put_nowait(i)
        q.put_nowait(None)

    def taken(q, out):
        while (item := q.get()) is not None:
            out.append(item)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(20):
            q, out = queue.Queue(), []
            thread = threading.Thread(target=taken, args=(q, out), daemon=True)
            thread.start()
            braze.compile(put, backend="eager")(q, 5)
            thread.join(30)
            assert out == [*range(5)]
    finally:
        sys.setswitchinterval(before)
