"""Messages of a compiled program: what is printed, logged and warned of goes where it would go uncompiled, as it would."""

import io
import logging
import pickle
import sys
import warnings

import pytest
import torch
from harness import outcome

import braze

STREAM = io.StringIO()
LOG = logging.getLogger("braze_test.messages")
SEEN = []


class Own(logging.Handler):
    def emit(self, record):
        SEEN.append(record.getMessage())


class OwnRecord(logging.LogRecord):
    def getMessage(self):
        return "own"


class OwnLogger(logging.Logger):
    def _log(self, level, msg, args, **how):
        SEEN.append((level, msg))


OWN = OwnLogger("own")


@pytest.fixture(autouse=True)
def handled():
    handler, LOG.propagate = logging.StreamHandler(STREAM), False
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    yield
    for h in (*LOG.handlers,):
        LOG.removeHandler(h)


def of_an_exception(x):
    try:
        raise RuntimeError("deliberate")
    except RuntimeError:
        LOG.exception("failed")
        LOG.error("again", exc_info=True)
    return x + 1


def of_no_level(x):
    LOG.log("10", "never")


def with_a_level_between(x):
    LOG.warning("one")
    LOG.setLevel(logging.ERROR)
    LOG.warning("two")
    LOG.setLevel(logging.INFO)
    LOG.warning("three")
    return x + 1


def while_disabled(x):
    LOG.disabled = True
    LOG.warning("one")
    LOG.disabled = False
    LOG.warning("two")
    return x + 1


def of_own_records(x):
    logging.setLogRecordFactory(OwnRecord)
    LOG.error("one")
    logging.setLogRecordFactory(logging.LogRecord)
    LOG.error("two")
    return x + 1


def with_own_format(x):
    LOG.warning("one")
    LOG.handlers[0].setFormatter(logging.Formatter("%(levelname)s:%(funcName)s:%(message)s"))
    LOG.warning("two")
    return helper(x)


def helper(x):
    LOG.warning("three")
    return x + 1


def to_own_handler(x):
    handler = Own()
    LOG.addHandler(handler)
    LOG.warning("one")
    LOG.removeHandler(handler)
    return x + len(SEEN)


def of_own_logger(x):
    OWN.warning("one %d", 1)
    OWN.log(logging.INFO, "two")
    return x + len(SEEN)


def with_the_stack(x):
    LOG.info("one", stack_info=True)
    return x + 1


def with_a_refused_field(x):
    LOG.info("one", extra={"message": 1})
    return x + 1


def of_a_new_logger(x):
    class New(logging.Logger):
        def __init__(self, name):
            super().__init__(name)
            SEEN.append(name)

    logging.setLoggerClass(New)
    try:
        name = f"braze_test.new{len(logging.Logger.manager.loggerDict)}"
        return x + len(logging.getLogger(name).handlers), len(SEEN)
    finally:
        logging.setLoggerClass(logging.Logger)


@pytest.mark.parametrize(
    "f",
    [
        of_an_exception,
        of_no_level,
        with_a_level_between,
        while_disabled,
        of_own_records,
        with_own_format,
        to_own_handler,
        of_own_logger,
        with_the_stack,
        with_a_refused_field,
        of_a_new_logger,
    ],
)
def test_logging(f):
    def run(g):
        STREAM.seek(0), STREAM.truncate(), SEEN.clear()
        LOG.handlers[0].setFormatter(None)
        how, what = outcome(g, (torch.ones(2),), {})
        return how, str(what), STREAM.getvalue(), [s for s in SEEN if not isinstance(s, str)]

    compiled = braze.compile(f)
    want, *rest = [run(g) for g in (f, compiled, compiled, compiled)]
    assert rest == [want] * 3


def test_a_plain_message_stays_in_the_graph():
    def f(x):
        LOG.info("of %s", tuple(x.shape))
        return x + 1

    STREAM.seek(0), STREAM.truncate()
    compiled = braze.compile(f, fullgraph=True)
    compiled(torch.ones(2)), compiled(torch.ones(2))
    assert STREAM.getvalue() == "of (2,)\n" * 2


def test_warnings_before_the_filters_change():
    def f(x):
        warnings.warn("shown")
        warnings.simplefilter("ignore")
        warnings.warn("hidden")
        return x + 1

    compiled = braze.compile(f)
    for g in (f, compiled, compiled):
        with warnings.catch_warnings(record=True) as got:
            warnings.simplefilter("always")
            g(torch.ones(1))
        assert [str(w.message) for w in got] == ["shown"]


def test_printing_before_the_output_is_put_back():
    class To:
        def __enter__(self):
            self.before, sys.stdout = sys.stdout, STREAM

        def __exit__(self, *error):
            sys.stdout = self.before

    def say(text, x, file=None):
        print(text, tuple(x.shape), file=file)

    def f(x):
        with To():
            braze.graph_break()
            say("inside", x)
        print("outside")
        return x + 1

    compiled = braze.compile(f)
    for g in (f, compiled, compiled):
        STREAM.seek(0), STREAM.truncate()
        g(torch.ones(1))
        assert STREAM.getvalue() == "inside (1,)\n"


def test_methods_are_pickled_as_methods():
    class Sink:
        def write(self, data):
            self.data = getattr(self, "data", b"") + data

    def f():
        sink = Sink()
        for protocol in (2, 3, 4):
            pickle._Pickler(sink, protocol).dump(OWN.isEnabledFor.__func__.__name__)
        return [getattr(Own().emit, n).__name__ for n in ("__reduce_ex__", "__hash__", "__init__")], sink.data

    assert braze.compile(f)() == f()
