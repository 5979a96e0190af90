import sys

import numpy as np
import pytest

import tutti

OFFSET = 3


@pytest.mark.parametrize("by", ["source", "cloudpickle"])
def test_a_plain_function(session, monkeypatch, by):
    if by == "source":
        without_cloudpickle(monkeypatch)

    @session.define
    def shift(x, k=1):
        """Uses a module of the controller's script."""
        return [float(v) for v in np.sort(x.numpy()) + k]

    made = shift(session.broadcast(np.array([3.0, 1.0])), 10)
    assert isinstance(shift, tutti.DPackedFunc)
    assert [made.debug_get_from_remote(w) for w in range(session.num_workers)] == [[11.0, 13.0]] * session.num_workers
    assert shift(np.array([1.0])).debug_get_from_remote(0) == [2.0]


def without_cloudpickle(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)


def uses_a_global(x):
    return x + OFFSET


def has_a_default(x, k=OFFSET):
    return x + k


def is_annotated(x: np.ndarray, shape: tutti.Tensor = None) -> np.ndarray:
    return [int(e) for e in x.shape]


def test_what_source_can_t_carry(session, monkeypatch):
    without_cloudpickle(monkeypatch)
    k = 2
    with pytest.raises(ValueError, match="no plain function"):
        session.define(lambda x: x)
    with pytest.raises(ValueError, match="cloudpickle"):
        session.define(lambda x: x * k)
    with pytest.raises(ValueError, match="OFFSET"):
        session.define(uses_a_global)
    with pytest.raises(ValueError, match="default"):
        session.define(has_a_default)
    assert session.define(is_annotated)(np.ones((2, 3))).debug_get_from_remote(0) == [2, 3]
    with pytest.raises(ValueError, match="can't be called"):
        session.define(3)
    session.sync_all()


def test_closures_by_cloudpickle(session):
    k = 5
    assert session.define(lambda x: x * k + OFFSET)(2).debug_get_from_remote(session.num_workers - 1) == 13


def test_an_error_in_it(session, monkeypatch):
    without_cloudpickle(monkeypatch)

    def fails(x):
        return x / 0

    line = fails.__code__.co_firstlineno + 1
    session.define(fails)(1)
    with pytest.raises(tutti.RemoteError, match="ZeroDivisionError") as caught:
        session.sync_all()
    assert f'File "{__file__}", line {line}, in fails\n    return x / 0' in caught.value.failures[0].traceback


def test_what_can_t_be_shipped(session):
    held = session.get_global_func("tutti.echo")(1)
    with pytest.raises(ValueError, match="pass DRefs as arguments"):
        session.define(lambda: held)
    session.sync_all()
