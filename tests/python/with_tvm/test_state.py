"""What lives long: caches of keys and values in registers, models that are loaded again and again, and what fails inside a kernel."""

import time

import numpy as np
import pytest
import tvm
from conftest import WORKERS, make_session
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tutti

WIDTH = 64


@pytest.fixture
def session():
    with make_session() as made:
        yield made


def cache_model():
    builder = relax.BlockBuilder()
    call, anything = relax.op.call_pure_packed, relax.ObjectType()
    first = relax.Var("first", R.Tensor((1, WIDTH), "float32"))
    with builder.function("create", [first]):
        builder.emit_func_output(builder.emit(call(
            "vm.builtin.attention_kv_cache_create", first, relax.ShapeExpr([16, WIDTH]), relax.prim_value(0), ty_args=anything)))
    cache, row = relax.Var("cache", anything), relax.Var("row", R.Tensor((1, WIDTH), "float32"))
    with builder.function("append", [cache, row]):
        builder.emit_func_output(builder.emit(call("vm.builtin.attention_kv_cache_append", cache, row, ty_args=anything)))
    cache, shape = relax.Var("cache", anything), relax.Var("shape", R.Shape(ndim=2))
    with builder.function("view", [cache, shape]):
        builder.emit_func_output(builder.emit(call("vm.builtin.attention_kv_cache_view", cache, shape, ty_args=R.Tensor(ndim=2, dtype="float32"))))
    return builder.finalize()


@I.ir_module
class Checked:
    @T.prim_func
    def kernel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        assert x[0] >= T.float32(0), "x begins below zero"
        for i in T.serial(4):
            y[i] = x[i] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return R.call_tir(Checked.kernel, (x,), R.Tensor((4,), "float32"))

    @R.function
    def summed(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.call_tir(Checked.kernel, (x,), R.Tensor((4,), "float32"))
        return R.ccl.allreduce(y, "sum")


def resident(session):
    @session.define
    def kib():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    return [kib().debug_get_from_remote(worker) for worker in range(WORKERS)]


def assert_no_growth(before, after, most_kib):
    assert max(b - a for a, b in zip(before, after)) < most_kib, (before, after)


def export(module, path):
    tvm.compile(module, target="llvm").export_library(str(path))
    return str(path)


def test_a_cache_over_a_thousand_steps(session, tmp_path):
    model = session.load_vm_module(export(cache_model(), tmp_path / "cache.so"))
    create, append, view = (model[name] for name in ("create", "append", "view"))
    rows = np.random.default_rng(1).standard_normal((1000, 1, WIDTH)).astype("float32")
    row = session.empty((1, WIDTH), "float32")
    def fill():
        cache = create(row)
        for each in rows:
            cache = append(cache, session.broadcast(each, row))
        return view(cache, tutti.Shape(1000, WIDTH))
    for _ in range(10):  # the allocators settle
        kept = fill()
    before = resident(session)
    for _ in range(32):
        for worker in range(WORKERS):
            np.testing.assert_array_equal(kept.debug_get_from_remote(worker).numpy(), rows[:, 0])
        kept = fill()
    assert_no_growth(before, resident(session), 5120)  # a row that is lost at each step is 8,000


def test_loads_and_drops_do_not_grow(session, tmp_path):
    path = export(cache_model(), tmp_path / "cache.so")
    row = session.broadcast(np.ones((1, WIDTH), "float32"))
    def use():
        for _ in range(100):
            model = session.load_vm_module(path)
            cache = model["append"](model["create"](row), row)
        np.testing.assert_array_equal(model["view"](cache, tutti.Shape(1, WIDTH)).debug_get_from_remote(0).numpy(), np.ones((1, WIDTH)))
    use()
    before = resident(session)
    for _ in range(20):
        use()
    assert_no_growth(before, resident(session), 5120)  # that many models are 14,000


@pytest.mark.parametrize("function, expected", [("main", 2), ("summed", 2 * WORKERS)])
def test_an_assertion_of_a_kernel(session, tmp_path, function, expected):
    """On one worker alone: the others go on, also if they wait for it in a collective of the model."""
    model = session.load_vm_module(export(Checked, tmp_path / "checked.so"))
    x = session.broadcast(np.ones(4, "float32"))
    x.debug_copy_from(WORKERS - 1, np.full(4, -1, "float32"))
    begun = time.monotonic()
    with pytest.raises(tutti.RemoteError, match=rf"(?s)worker {WORKERS - 1}.*x begins below zero"):
        model[function](x)
        session.sync_all()
    assert time.monotonic() - begun < 20
    x.debug_copy_from(WORKERS - 1, np.ones(4, "float32"))
    y = model[function](x)
    for worker in range(WORKERS):
        np.testing.assert_array_equal(y.debug_get_from_remote(worker).numpy(), [expected] * 4)
