"""Models that a stock apache-tvm has compiled, on every kind of session: what TVM's own test_session.py and test_ccl.py look at."""

import os

import numpy as np
import pytest
import tvm
from conftest import WORKERS, make_session
from tvm import relax
from tvm.script import relax as R

import tutti

CPUS = os.sched_getaffinity(0)
PART = 16  # of each worker
SIZE = PART * WORKERS


@pytest.fixture
def session():
    os.sched_setaffinity(0, CPUS)  # TVM, used here by an earlier test, has moved this thread
    with make_session() as made:
        yield made


@pytest.fixture
def compiled(tmp_path):
    """A function that compiles a module for the host, and says where it is."""
    def compile_module(module, name="model"):
        path = tmp_path / f"{name}.so"
        tvm.compile(module, target="llvm").export_library(str(path))
        return str(path)
    return compile_module


def random_array(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def on_all(session, parts):
    """Each worker's own array."""
    array = session.empty(parts[0].shape, str(parts[0].dtype))
    for worker, part in enumerate(parts):
        array.debug_copy_from(worker, part)
    return array


def elementwise():
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((8, 16), "float32"))
    with builder.function("transpose_1", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.permute_dims(x))
        builder.emit_func_output(y)
    x = relax.Var("x", R.Tensor((16, 8), "float32"))
    with builder.function("double", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(y)
    return builder.finalize()


def with_map():
    """A function that is given a map of tensors, and one that makes a map."""
    builder = relax.BlockBuilder()
    parameters, x = relax.Var("parameters", relax.ObjectType()), relax.Var("x", R.Tensor((4,), "float32"))
    with builder.function("biased", [parameters, x]):
        bias = builder.emit(relax.op.call_pure_packed("ffi.MapGetItem", parameters, R.str("bias"),
                                                      ty_args=R.Tensor((4,), "float32")))
        y = builder.emit(relax.op.add(x, bias))
        builder.emit_func_output(builder.emit(relax.op.call_pure_packed("ffi.Map", R.str("y"), y, R.str("bias"), bias,
                                                                        ty_args=relax.ObjectType())))
    return builder.finalize()


def mlp(is_parallel):
    """x W1 -> gelu -> W2: of W1 a worker has columns, of W2 rows."""
    part = PART if is_parallel else SIZE
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((8, SIZE), "float32"))
    w1 = relax.Var("w1", R.Tensor((SIZE, part), "float32"))
    w2 = relax.Var("w2", R.Tensor((part, SIZE), "float32"))
    with builder.function("main", [x, w1, w2]):
        with builder.dataflow():
            whole = builder.emit(relax.op.ccl.broadcast_from_worker0(x)) if is_parallel else x
            hidden = builder.emit(relax.op.nn.gelu(builder.emit(relax.op.matmul(whole, w1))))
            out = builder.emit(relax.op.matmul(hidden, w2))
            if is_parallel:
                out = builder.emit(relax.op.ccl.allreduce(out, "sum"))
            out = builder.emit_output(out)
        builder.emit_func_output(out)
    return builder.finalize()


def test_functions_of_a_model(session, compiled):
    model = session.load_vm_module(compiled(elementwise()))
    x = random_array(1, 8, 16)
    turned = model["transpose_1"](session.broadcast(x))
    twice = model["double"](turned)
    for worker in range(WORKERS):
        np.testing.assert_array_equal(twice.debug_get_from_remote(worker).numpy(), 2 * x.T)


def test_a_model_is_loaded_and_dropped(session, compiled):
    path, x = compiled(elementwise()), random_array(2, 16, 8)
    for _ in range(20):
        model = session.load_vm_module(path)
        y = model["double"](session.broadcast(x))
        np.testing.assert_array_equal(y.debug_get_from_remote(WORKERS - 1).numpy(), 2 * x)
        del model, y


def test_functions_of_the_registry(session, compiled):
    session.load_vm_module(compiled(elementwise()))
    shape_of = session.get_global_func("vm.builtin.shape_of")
    shape = shape_of(session.broadcast(random_array(2, 16, 8)))
    assert list(shape.debug_get_from_remote(WORKERS - 1)) == [16, 8]


def test_views_are_taken(session, compiled):
    """A register that begins in the middle of its memory."""
    x = random_array(3, 40, 8)
    model = session.load_vm_module(compiled(elementwise()))
    tensor = session.distribute(x, tutti.distributed.DeviceMesh(WORKERS), "R")[16:32]
    y = model["double"](tensor.parts)
    np.testing.assert_array_equal(y.debug_get_from_remote(0).numpy(), 2 * x[16:32])


def test_a_module_is_an_argument(session, compiled):
    """As Disco's DModule gets its functions."""
    model = session.load_vm_module(compiled(elementwise()))
    double = tutti.DPackedFunc(session.get_global_func("ffi.ModuleGetFunction")(model, "double", False), session)
    x = random_array(2, 16, 8)
    np.testing.assert_array_equal(double(session.broadcast(x)).debug_get_from_remote(WORKERS - 1).numpy(), 2 * x)


def test_a_function_that_is_missing(session, compiled):
    model = session.load_vm_module(compiled(elementwise()))
    with pytest.raises((RuntimeError, AttributeError), match="no function 'triple'"):
        model["triple"](session.broadcast(random_array(1, 8, 16)))
        session.sync_all()
    x = random_array(2, 16, 8)  # the session goes on
    np.testing.assert_array_equal(model["double"](session.broadcast(x)).debug_get_from_remote(WORKERS - 1).numpy(), 2 * x)


def test_an_error_of_the_virtual_machine(session, compiled):
    model = session.load_vm_module(compiled(elementwise()))
    with pytest.raises(tutti.RemoteError, match=r"(?s)double: RuntimeError: .*match_cast error.*builtin\.cc"):
        model["double"](session.broadcast(random_array(1, 3, 3)))
        session.sync_all()
    x = random_array(2, 16, 8)
    np.testing.assert_array_equal(model["double"](session.broadcast(x)).debug_get_from_remote(0).numpy(), 2 * x)


def test_tensor_parallel_mlp(session, compiled):
    x, w1, w2 = random_array(1, 8, SIZE), random_array(2, SIZE, SIZE), random_array(3, SIZE, SIZE)
    alone = relax.VirtualMachine(tvm.compile(mlp(False), target="llvm"), tvm.cpu())
    expected = alone["main"](*(tvm.runtime.tensor(each) for each in (x, w1, w2))).numpy()
    model = session.load_vm_module(compiled(mlp(True)))
    columns = on_all(session, [np.ascontiguousarray(w1[:, w * PART : (w + 1) * PART]) for w in range(WORKERS)])
    rows = on_all(session, [w2[w * PART : (w + 1) * PART] for w in range(WORKERS)])
    xs = session.empty(x.shape, "float32")
    xs.debug_copy_from(0, x)  # the others' part is anything
    out = model["main"](xs, columns, rows)
    for worker in range(WORKERS):
        np.testing.assert_allclose(out.debug_get_from_remote(worker).numpy(), expected, rtol=1e-4, atol=1e-3)


def test_collectives_of_the_registry(session, compiled):
    """As a program finds them by TVM's own API, inside a worker function."""
    @session.define
    def sum_of(x):
        import numpy as np
        import tutti
        import tvm_ffi
        out = tvm_ffi.from_dlpack(tutti.tensor(np.zeros(2, "float32")))
        tvm_ffi.get_global_func("runtime.disco.allreduce")(tvm_ffi.from_dlpack(x), tvm_ffi.Shape([0]), False, out)
        return list(tvm_ffi.get_global_func("runtime.disco.worker_id")()), np.from_dlpack(out).tolist()
    session.load_vm_module(compiled(elementwise()))  # TVM's registry has ours from then on
    got = sum_of(session.broadcast(np.ones(2, "float32")))
    assert [got.debug_get_from_remote(w) for w in range(WORKERS)] == [[[w], [WORKERS, WORKERS]] for w in range(WORKERS)]


def test_maps(session, compiled):
    """A dict is a map inside of a model; a map of a model stays itself on its worker, and travels as a dict."""
    model = session.load_vm_module(compiled(with_map()))
    bias, x = random_array(1, 4), random_array(2, 4)
    made = model["biased"]({"bias": session.broadcast(bias), "unused": [1, {"a": 2.5}]}, session.broadcast(x))
    again = model["biased"](made, session.broadcast(x))
    opened = session.define(lambda each: type(each).__name__)(made)
    for worker in range(WORKERS):
        for result in (made, again):
            held = result.debug_get_from_remote(worker)
            assert list(held) == ["y", "bias"]
            np.testing.assert_array_equal(held["y"].numpy(), x + bias)
            np.testing.assert_array_equal(held["bias"].numpy(), bias)
        assert opened.debug_get_from_remote(worker) == "dict"
    with pytest.raises(tutti.RemoteError, match="KeyError"):
        model["biased"]({"other": 1}, session.broadcast(x))
        session.sync_all()
    sizes = [session.get_global_func("ffi.MapSize")(each) for each in ({}, {"a": 1, 2: [3]})]
    assert [size.debug_get_from_remote(WORKERS - 1) for size in sizes] == [0, 2]


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("is_late", [False, True])
def test_workers_and_threads_of_tvm_keep_to_their_cpus(session, compiled, is_late, threads):
    """TVM's pool of threads, as it is made, binds its caller and itself to the first cores of the machine."""
    @session.define
    def look(known, makes_pool, threads):
        import os
        import tvm_ffi
        os.environ["TVM_NUM_THREADS"] = threads
        if makes_pool:
            tvm_ffi.get_global_func("runtime.NumThreads")()
        tasks = [int(task) for task in os.listdir("/proc/self/task")]
        return tasks, [sorted(os.sched_getaffinity(task)) for task in [0, *tasks] if task not in known]

    before = look([], False, threads)
    session.sync_all()
    if is_late:
        look([], True, threads)
    session.load_vm_module(compiled(elementwise()))
    session.sync_all()
    for worker in range(WORKERS):
        known, (expected, *_) = before.debug_get_from_remote(worker)
        caller, *pool = look(known, True, threads).debug_get_from_remote(worker)[1]
        assert caller == expected and all(of == expected for of in pool)
