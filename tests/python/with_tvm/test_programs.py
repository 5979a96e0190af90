"""TVM programs as they are, with tutti's module in the place of tvm.runtime.disco: what TVM's own tests of Disco look at."""

import json

import numpy as np
import pytest
import tvm
import tvm_ffi
from conftest import KIND, WORKERS
from tvm import relax
from tvm.contrib import tvmjs
from tvm.exec import disco_worker as _  # noqa: F401  its tests.disco.* functions; workers of processes import it, too
from tvm.script import relax as R

import tutti
import tutti.tvm
from tvm.runtime import disco  # isort: skip

GROUPS = WORKERS if WORKERS % 2 else 2
Session = disco.ThreadedSession if KIND == "thread" else disco.ProcessSession  # in an MPI job its ranks


@pytest.fixture(params=["mpi", "local"])
def session(request):
    with Session(num_workers=WORKERS) as made:
        made.init_ccl(request.param, *range(WORKERS))
        yield made


@pytest.fixture
def groups():
    with Session(num_workers=WORKERS, num_groups=GROUPS) as made:
        made.init_ccl("mpi", *range(WORKERS))
        yield made


def on_each(session, parts):
    array = session.empty(parts[0].shape, str(parts[0].dtype))
    for worker, part in enumerate(parts):
        array.debug_copy_from(worker, part)
    return array


def of_all(dref):
    return [dref.debug_get_from_remote(worker) for worker in range(WORKERS)]


def numbers(*shape):
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


def test_maps(session):
    given = tvm_ffi.Map({"bias": tvm.runtime.tensor(numbers(3)), "n": 2, "inside": tvm_ffi.Map({1: "one"})})
    for held in of_all(session.get_global_func("tutti.echo")(given)):
        assert isinstance(held, tvm_ffi.Map) and list(held) == ["bias", "n", "inside"] and held["inside"][1] == "one"
        assert isinstance(held["bias"], tvm.runtime.Tensor) and held["bias"].numpy().tolist() == [0, 1, 2]


def test_it_is_tuttis():
    assert disco is tutti.tvm and disco.DRef is tutti.DRef
    assert tvm.runtime.disco.Session is tutti.Session
    from tvm.runtime.disco import session as module
    from tvm.runtime.disco.session import REDUCE_OPS, ProcessSession

    assert module is disco and ProcessSession is tutti.tvm.ProcessSession and REDUCE_OPS["max"] == 3
    assert tvm_ffi.get_global_func("runtime.disco.compiled_ccl")() in ("mpi", "nccl", "rccl")


@pytest.mark.parametrize("name, argument, expected", [
    ("add_one", 1, 2),
    ("add_one_float", 1.5, 2.0),
    ("str", "hello", "hello_suffix"),
    ("str_obj", tvm_ffi.core.String("hello"), "hello_suffix"),
    ("shape_tuple", tvm.runtime.ShapeTuple([1, 2, 3]), tvm.runtime.ShapeTuple([1, 2, 3, 4, 5])),
])
def test_functions_of_tvms_registry(session, name, argument, expected):
    for value in of_all(session.get_global_func("tests.disco." + name)(argument)):
        assert value == expected and isinstance(value, type(expected))


def test_strings_and_shapes_are_tvms(session):
    for value in of_all(session.get_global_func("tests.disco.str_obj")("hello")):
        assert isinstance(value, tvm_ffi.core.String)
    for value in of_all(session.get_global_func("tutti.echo")(tvm.runtime.ShapeTuple([2]))):
        assert isinstance(value, tvm.runtime.ShapeTuple)


@pytest.mark.parametrize("value", [tvm.cpu(0), tvm_ffi.dtype("int8"), None, 7, 2.5, True, b"bytes"])
def test_other_values_of_tvms(session, value):
    for got in of_all(session.get_global_func("tutti.echo")(value)):
        assert got == value and isinstance(got, type(value))


def test_arrays_of_tvms(session):
    """Nested, and with a register inside: as an argument, and back."""
    register = session.broadcast(numbers(2))
    for got in of_all(session.get_global_func("tutti.echo")(tvm_ffi.Array([1, "two", tvm_ffi.Array([3.0])]))):
        assert isinstance(got, tvm_ffi.Array) and isinstance(got[2], tvm_ffi.Array)
        assert (got[0], got[1], list(got[2])) == (1, "two", [3.0])
    for got in of_all(session.get_global_func("tutti.echo")([register, 4])):
        assert isinstance(got[0], tvm.runtime.Tensor) and list(got[0].numpy()) == [0, 1] and got[1] == 4


@pytest.fixture
def threads():
    """In other processes workers know what the modules that they import register."""
    with disco.ThreadedSession(num_workers=WORKERS) as made:
        yield made


def test_functions_that_are_registered_late(threads):
    @tvm_ffi.register_global_func("tutti.test.late", override=True)
    def late(x, shape, nothing):
        assert isinstance(x, tvm.runtime.Tensor) and nothing is None
        return [x.numpy().sum(), shape]

    for got in of_all(threads.get_global_func("tutti.test.late")(tvm.runtime.tensor(numbers(3)), tvm.runtime.ShapeTuple([4]), None)):
        assert got[0] == 3 and list(got[1]) == [4]

    @tvm_ffi.register_global_func("tutti.test.fails", override=True)
    def fails():
        raise ValueError("as it should")

    with pytest.raises(tutti.RemoteError, match="(?s)ValueError: as it should.*in fails"):
        threads.get_global_func("tutti.test.fails")()
        threads.sync_all()


def test_tensors_into_single_workers(session):
    x = session.empty((2, 2), "float32")
    for worker in range(WORKERS):
        x.debug_copy_from(worker, tvm.runtime.tensor(numbers(2, 2) + worker))
    for worker, got in enumerate(of_all(x)):
        np.testing.assert_array_equal(got.numpy(), numbers(2, 2) + worker)
    for worker, got in enumerate(of_all(session.scatter(tvm.runtime.tensor(numbers(WORKERS, 3))))):
        np.testing.assert_array_equal(got.numpy(), numbers(WORKERS, 3)[worker])


def test_tensors_of_tvms(session):
    x = numbers(2, 3)
    remote = session.empty(x.shape, "float32", device=tvm.cpu(0))
    session.copy_to_worker_0(tvm.runtime.tensor(x), remote)
    sum = session.get_global_func("tests.disco.add_one_tensor")(remote)
    host = tvm.runtime.empty(x.shape, "float32")
    session.copy_from_worker_0(host, sum)
    session.sync_worker_0()
    np.testing.assert_array_equal(host.numpy(), x + 1)
    assert isinstance(sum.debug_get_from_remote(WORKERS - 1), tvm.runtime.Tensor)
    for got in of_all(session.broadcast(tvm.runtime.tensor(x))):
        np.testing.assert_array_equal(got.numpy(), x)


def test_tensors_share_their_memory():
    theirs = tvm.runtime.tensor(numbers(4))
    ours = tutti.from_dlpack(theirs)
    np.asarray(ours)[1] = 7
    assert theirs.numpy()[1] == 7
    back = tvm.runtime.from_dlpack(ours)
    np.asarray(ours)[2] = 8
    assert back.numpy()[2] == 8


@pytest.mark.parametrize("op, combine", [("sum", np.add), ("prod", np.multiply), ("min", np.minimum), ("max", np.maximum), ("avg", np.add)])
def test_allreduce(session, op, combine):
    parts = [numbers(3, 4) * (-1) ** w + w for w in range(WORKERS)]
    result = session.empty((3, 4), "float32")
    session.allreduce(on_each(session, parts), result, op=op)
    expected = parts[0]
    for part in parts[1:]:
        expected = combine(expected, part)
    for got in of_all(result):
        np.testing.assert_allclose(got.numpy(), expected / (WORKERS if op == "avg" else 1), rtol=1e-6)


def test_collectives_keep_the_count_not_the_shape(session):
    whole = numbers(WORKERS * 2, 9)
    gathered = session.empty((WORKERS * 3, 6), "float32")
    parts = on_each(session, np.split(whole, WORKERS))
    session.allgather(parts, gathered)
    for got in of_all(gathered):
        np.testing.assert_array_equal(got.numpy(), whole.reshape(WORKERS * 3, 6))
    first = session.empty((WORKERS * 3, 6), "float32", worker0_only=True)
    session.gather_to_worker0(parts, first)
    np.testing.assert_array_equal(first.debug_get_from_remote(0).numpy(), whole.reshape(WORKERS * 3, 6))
    scattered = session.empty((3, 6), "float32")
    session.scatter_from_worker0(first, scattered)
    for worker, got in enumerate(of_all(scattered)):
        np.testing.assert_array_equal(got.numpy().ravel(), whole.ravel()[worker * 18 : worker * 18 + 18])


def test_broadcast_and_scatter_of_arrays(session):
    x = numbers(WORKERS, 6, 3)
    for got in of_all(session.broadcast(x)):
        np.testing.assert_array_equal(got.numpy(), x)
    for worker, got in enumerate(of_all(session.scatter(x))):
        np.testing.assert_array_equal(got.numpy(), x[worker])


def test_groups(groups):
    size = WORKERS // GROUPS
    parts = [numbers(2, 3) + w for w in range(WORKERS)]
    x = on_each(groups, parts)
    summed, gathered, sent = (groups.empty(shape, "float32") for shape in ((2, 3), (size, 2, 3), (2, 3)))
    groups.allreduce(x, summed)
    groups.allgather(x, gathered)
    groups.broadcast_from_worker0(x, sent)
    for worker in range(WORKERS):
        own = parts[worker // size * size :][:size]
        np.testing.assert_array_equal(summed.debug_get_from_remote(worker).numpy(), sum(own))
        np.testing.assert_array_equal(gathered.debug_get_from_remote(worker).numpy(), np.stack(own))
        np.testing.assert_array_equal(sent.debug_get_from_remote(worker).numpy(), own[0])
    if WORKERS == 4:
        groups.get_global_func("runtime.disco.mpi.test_send_to_next_group_recv_from_prev_group")(x)
        np.testing.assert_array_equal(x.debug_get_from_remote(3).numpy(), parts[1])
        groups.get_global_func("runtime.disco.mpi.test_worker2_sends_to_worker0")(x)
        np.testing.assert_array_equal(x.debug_get_from_remote(0).numpy(), parts[0])


HEADS, HEAD, LENGTH, WIDTH = 2, 8, 5, 24  # heads of a worker


def attention(heads, is_parallel):
    """Of the projections a worker has the columns of its heads, of the last one the rows."""
    size = heads * HEAD
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((1, LENGTH, WIDTH), "float32"))
    weights = [relax.Var(name, R.Tensor((WIDTH, size), "float32")) for name in ("wq", "wk", "wv")]
    wo = relax.Var("wo", R.Tensor((size, WIDTH), "float32"))
    op = relax.op
    with builder.function("main", [x, *weights, wo]):
        with builder.dataflow():
            whole = builder.emit(op.ccl.broadcast_from_worker0(x)) if is_parallel else x
            q, k, v = (
                builder.emit(op.permute_dims(op.reshape(op.matmul(whole, w), (1, LENGTH, heads, HEAD)), [0, 2, 1, 3])) for w in weights)
            scores = builder.emit(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])))
            shares = builder.emit(op.nn.softmax(op.multiply(scores, relax.const(HEAD**-0.5, "float32")), axis=-1))
            mixed = builder.emit(op.reshape(op.permute_dims(op.matmul(shares, v), [0, 2, 1, 3]), (1, LENGTH, size)))
            out = builder.emit(op.matmul(mixed, wo))
            out = builder.emit_output(op.ccl.allreduce(out, "sum") if is_parallel else out)
        builder.emit_func_output(out)
    return builder.finalize()


def test_attention(session, tmp_path):
    rng = np.random.default_rng(1)
    size = WORKERS * HEADS * HEAD
    x, *ws = (rng.standard_normal(s).astype("float32") for s in [(1, LENGTH, WIDTH)] + [(WIDTH, size)] * 3 + [(size, WIDTH)])
    alone = relax.VirtualMachine(tvm.compile(attention(WORKERS * HEADS, False), target="llvm"), tvm.cpu())
    expected = alone["main"](*(tvm.runtime.tensor(each) for each in (x, *ws))).numpy()
    path = str(tmp_path / "attention.so")
    tvm.compile(attention(HEADS, True), target="llvm").export_library(path)
    model = session.load_vm_module(path, device=tvm.cpu())
    parts = [on_each(session, [np.ascontiguousarray(p) for p in np.split(w, WORKERS, axis=w.shape[0] == size or 1)]) for w in ws[:3]]
    parts.append(on_each(session, np.split(ws[3], WORKERS)))
    first = session.empty(x.shape, "float32")
    session.copy_to_worker_0(tvm.runtime.tensor(x), first)
    for got in of_all(model["main"](first, *parts)):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-3, atol=1e-3)


def collectives():
    """The two that cut."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((WORKERS * 2, 3), "float32"))
    with builder.function("scatter", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.ccl.scatter_from_worker0(x, WORKERS))
        builder.emit_func_output(out)
    x = relax.Var("x", R.Tensor((2, 3), "float32"))
    with builder.function("gather", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.ccl.allgather(x, WORKERS))
        builder.emit_func_output(out)
    return builder.finalize()


def test_scatter_and_allgather_in_a_model(session, tmp_path):
    path = str(tmp_path / "collectives.so")
    tvm.compile(collectives(), target="llvm").export_library(path)
    model = session.load_vm_module(path)
    whole = numbers(WORKERS * 2, 3)
    first = session.empty(whole.shape, "float32")
    first.debug_copy_from(0, whole)
    parts = model["scatter"](first)
    for worker, got in enumerate(of_all(parts)):
        np.testing.assert_array_equal(got.numpy(), whole[worker * 2 : worker * 2 + 2])
    for got in of_all(model["gather"](parts)):
        np.testing.assert_array_equal(got.numpy(), whole)


def loads():
    """A tuple of two parameters, which the loader among the arguments reads."""
    builder = relax.BlockBuilder()
    loader = relax.Var("loader", relax.ObjectType())
    with builder.function("main", [loader]):
        each = [builder.emit(relax.op.call_pure_packed("runtime.disco.ShardLoaderLoad", loader, relax.ShapeExpr([i]),
                                                       ty_args=R.Tensor((WORKERS * 2, 6), "float32"))) for i in range(2)]
        builder.emit_func_output(builder.emit(relax.Tuple(each)))
    return builder.finalize()


def test_shard_loader_in_a_model(session, tmp_path):
    params = {"a": numbers(WORKERS * 2, 6), "b": -numbers(WORKERS * 2, 6)}
    tvmjs.dump_tensor_cache(params, str(tmp_path), encode_format="raw")
    cache = tmp_path / "tensor-cache.json"
    loader = session.get_global_func("runtime.disco.ShardLoader")(str(cache), cache.read_text(), json.dumps({}), None)
    path = str(tmp_path / "loads.so")
    tvm.compile(loads(), target="llvm").export_library(path)
    for got in of_all(session.load_vm_module(path)["main"](loader)):
        for name, tensor in zip(params, got):
            np.testing.assert_array_equal(tensor.numpy(), params[name])
