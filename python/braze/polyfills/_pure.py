"""Modules of the standard library whose functions are C by default, as the Python code that comes with them."""

import importlib.util
import sys


def _without(name, accelerator):
    # A module of its own: the one that programs import stays as it is.
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    there = accelerator in sys.modules
    before = sys.modules.get(accelerator)
    sys.modules[accelerator] = None
    try:
        spec.loader.exec_module(module)
    finally:
        if there:
            sys.modules[accelerator] = before
        else:
            del sys.modules[accelerator]
    return module


_heapq = _without("heapq", "_heapq")
heapify, heappush, heappop = _heapq.heapify, _heapq.heappush, _heapq.heappop
heapreplace, heappushpop = _heapq.heapreplace, _heapq.heappushpop

_bisect = _without("bisect", "_bisect")
bisect_left, bisect_right = _bisect.bisect_left, _bisect.bisect_right
insort_left, insort_right = _bisect.insort_left, _bisect.insort_right

_operator = _without("operator", "_operator")
countOf, indexOf = _operator.countOf, _operator.indexOf


def count_elements(mapping, iterable):
    get = mapping.get
    for element in iterable:
        mapping[element] = get(element, 0) + 1


class _Key:
    __slots__ = ("_compare", "obj")

    def __init__(self, compare, obj):
        self._compare = compare
        self.obj = obj

    def __lt__(self, other):
        return self._compare(self.obj, other.obj) < 0

    def __gt__(self, other):
        return self._compare(self.obj, other.obj) > 0

    def __eq__(self, other):
        return self._compare(self.obj, other.obj) == 0

    def __le__(self, other):
        return self._compare(self.obj, other.obj) <= 0

    def __ge__(self, other):
        return self._compare(self.obj, other.obj) >= 0

    __hash__ = None


def cmp_to_key(mycmp):
    def key(obj):
        return _Key(mycmp, obj)

    return key
