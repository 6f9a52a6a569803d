"""operator's makers of functions."""


def _only(name, args, kwargs):
    if kwargs:
        raise TypeError(f"{name}() takes no keyword arguments")
    if len(args) != 1:
        raise TypeError(f"{name} expected 1 argument, got {len(args)}")
    return args[0]


def itemgetter(item, /, *items):
    if not items:
        return lambda *args, **kwargs: _only("itemgetter", args, kwargs)[item]
    items = (item, *items)

    def get(*args, **kwargs):
        obj = _only("itemgetter", args, kwargs)
        return tuple([obj[i] for i in items])

    return get


def _follow(obj, path):
    for name in path.split("."):
        obj = getattr(obj, name)
    return obj


def attrgetter(attr, /, *attrs):
    attrs = (attr, *attrs)
    for name in attrs:
        if not isinstance(name, str):
            raise TypeError("attribute name must be a string")
    if len(attrs) == 1:
        return lambda *args, **kwargs: _follow(_only("attrgetter", args, kwargs), attr)

    def get(*args, **kwargs):
        obj = _only("attrgetter", args, kwargs)
        return tuple([_follow(obj, n) for n in attrs])

    return get


def methodcaller(name, /, *args, **kwargs):
    if not isinstance(name, str):
        raise TypeError("method name must be a string")
    return lambda *given, **named: getattr(_only("methodcaller", given, named), name)(*args, **kwargs)
