"""operator's makers of functions."""


def itemgetter(item, /, *items):
    if not items:
        return lambda obj, /: obj[item]
    items = (item, *items)
    return lambda obj, /: tuple([obj[i] for i in items])


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
        return lambda obj, /: _follow(obj, attr)
    return lambda obj, /: tuple([_follow(obj, n) for n in attrs])


def methodcaller(name, /, *args, **kwargs):
    if not isinstance(name, str):
        raise TypeError("method name must be a string")
    return lambda obj, /: getattr(obj, name)(*args, **kwargs)
