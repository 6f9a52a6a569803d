"""Classes and functions that all worlds see: put back after each program as they were."""

import abc
import collections
import enum
import functools
import math
import operator
import string
import types
import weakref

import torch

CLASSES = [
    torch.Tensor, torch.nn.Parameter, torch.nn.Module, torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ReLU, torch.nn.Tanh, torch.nn.Identity, torch.nn.Sigmoid, collections.ChainMap, collections.Counter,
    weakref.WeakValueDictionary, functools.cached_property, functools.partialmethod, enum.Enum, enum.IntEnum, enum.EnumType, abc.ABCMeta, torch.utils.hooks.RemovableHandle, *(c for c in vars(collections.abc).values() if isinstance(c, type)),
]  # fmt: skip
MODULES = [
    torch,
    torch.nn,
    torch.nn.functional,
    torch.nn.modules.module,
    math,
    operator,
    string,
    functools,
    collections,
]
FIELDS = ("__code__", "__defaults__", "__kwdefaults__")


def functions(names):
    return [f for f in names.values() if isinstance(f, types.FunctionType)]


class Shared:
    def __init__(self):
        self.names = [(o, dict(vars(o))) for o in (*CLASSES, *MODULES)]
        self.functions = [
            (f, *(getattr(f, n) for n in FIELDS), dict(f.__dict__)) for o in CLASSES for f in functions(vars(o))
        ]

    def put_back(self):
        for o, before in self.names:
            now = vars(o)
            if len(now) == len(before) and all(now.get(k) is v for k, v in before.items()):
                continue
            for k in [k for k in now if k not in before and k[:3] != "_ab"]:
                type.__delattr__(o, k) if isinstance(o, type) else delattr(o, k)
            for k, v in before.items():
                if now.get(k) is not v and k not in ("__dict__", "__weakref__"):
                    type.__setattr__(o, k, v) if isinstance(o, type) else setattr(o, k, v)
        for f, *fields, attributes in self.functions:
            for n, v in zip(FIELDS, fields):
                if getattr(f, n) is not v:
                    setattr(f, n, v)
            if f.__dict__ != attributes:
                f.__dict__.clear()
                f.__dict__.update(attributes)
