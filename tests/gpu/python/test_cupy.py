"""Arithmetic of DTensors on a real GPU, by cupy: the functions that tests/python/test_arithmetic.py compares with numpy. check.sh runs it."""

import numpy as np
import pytest

import tutti
from tutti.distributed import DeviceMesh

cupy = pytest.importorskip("cupy")


@pytest.fixture(scope="module")
def session():
    with tutti.ThreadedSession(1) as made:
        made.init_ccl("nccl")
        yield made


A, B = np.arange(-12, 12).reshape(4, 6), np.arange(1, 7)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "float16", "float32", "float64", "complex64", "bool"])
@pytest.mark.parametrize("name, f", [
    ("+", lambda a, b: a + b), ("number", lambda a, b: 2 * a), ("numpy's number", lambda a, b: a * np.float32(2)), ("/", lambda a, b: a / b),
    ("maximum", lambda a, b: np.maximum(a, b)), ("exp", lambda a, b: np.exp(a)), ("==", lambda a, b: a == b), ("@", lambda a, b: a @ b), ("@ T", lambda a, b: a @ a.T),
    ("vectors", lambda a, b: b @ b), ("sum", lambda a, b: a.sum()), ("sum of an axis", lambda a, b: a.sum(axis=1)), ("keepdims", lambda a, b: a.sum(axis=0, keepdims=True)),
    ("max", lambda a, b: a.max(axis=1)), ("any", lambda a, b: a.any(axis=1)), ("all", lambda a, b: a.all()), ("mean", lambda a, b: a.mean(axis=0)),
    ("astype", lambda a, b: a.astype("float64")), ("slice", lambda a, b: a[1:3, ::2] + 1), ("empty", lambda a, b: a[0:0] + b), ("sum of none", lambda a, b: a[0:0].sum(axis=0)),
])
def test_as_numpy(session, dtype, name, f):
    a, b = A.astype(dtype), B.astype(dtype)
    if dtype == "complex64" and name in ("max", "maximum"):  # complex numbers have no order
        return
    with np.errstate(all="ignore"):
        expected = np.asarray(f(a, b))
    got = f(*(session.distribute(each, DeviceMesh(1), "R") for each in (a, b)))
    where = session.call_packed(session.define(lambda x: str(x.device)), got).debug_get_from_remote(0)
    assert where.startswith("cuda"), where
    got = got.full().numpy()
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-3 if got.dtype.itemsize == 2 else 1e-5)


def test_in_place(session):
    x = session.distribute(A.astype("float32"), DeviceMesh(1), "S[0]")
    x *= 2
    x -= x.mean(axis=1, keepdims=True)
    expected = 2 * A - (2 * A).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(x.full().numpy(), expected, atol=1e-5)
    rows = session.distribute(np.arange(6.0), DeviceMesh(1), "R")
    rows[1:] = rows[:-1]
    rows[1:] += rows[:-1]
    rows[0] = 9
    assert list(rows.full().numpy()) == [9, 0, 1, 3, 5, 7]
