import gc
import io
import threading

import numpy as np
import pytest

import tutti

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "complex64",
          "complex128"]


@pytest.mark.parametrize(
    "value", [None, True, False, 0, -1, 2**63 - 1, -(2**63), 1.5, float("inf"), "", "text ü", b"", b"\x00\xff", [], [1, "a", [None, 2.5]],
              {}, {"a": [1, {2: None}], (3, "b"): tutti.Shape(1)}, tutti.Shape(2, 3), tutti.DataType("float16"), tutti.cpu(0)], ids=repr)
def test_round_trip(session, value):
    made = session.get_global_func("test.identity")(value)
    for worker in range(session.num_workers):
        back = made.debug_get_from_remote(worker)
        assert back == value and type(back) is type(value)


def test_types_on_the_worker(session):
    name = session.get_global_func("test.type_name")
    for value, expected in [(None, "NoneType"), (True, "bool"), (3, "int"), (3.0, "float"), ("x", "str"), (b"x", "bytes"), ([1], "list"),
                            ({1: 2}, "dict"), ((1, 2), "list"), (tutti.Shape(1), "Shape"), (tutti.DataType("int8"), "DataType"), (tutti.cpu(), "Device"),
                            (np.float32(2), "float"), (np.int16(2), "int"), (np.bool_(True), "bool"), (np.ones(2), "Tensor"),
                            (np.dtype("int8"), "DataType")]:
        assert name(value).debug_get_from_remote(0) == expected


def test_dicts(session):
    """The worker's own object stays what it is; what travels is a copy of what it holds."""
    @session.define
    def begin():
        import numpy
        return {"w": numpy.zeros(3), "step": 0}

    @session.define
    def step(state, by):
        state["w"] += by["much"]
        state["step"] += 1

    state = begin()
    for _ in range(2):
        step(state, {"much": 1.5, "why": {"more": [1]}})
    last = session.num_workers - 1
    for worker in range(session.num_workers):
        held = state.debug_get_from_remote(worker)
        assert held["step"] == 2 and held["w"].numpy().tolist() == [3, 3, 3]
    held["w"].numpy()[:] = 0
    assert state.debug_get_from_remote(last)["w"].numpy().tolist() == [3, 3, 3]
    inside = session.get_global_func("test.identity")({"state": state, "x": session.broadcast(np.ones(2))})
    session.sync_all()
    held = inside.debug_get_from_remote(last)
    assert held["state"]["step"] == 2 and held["x"].numpy().tolist() == [1, 1]
    for worker in (0, last):
        given = {"w": np.ones(1), ((1, 2), 3): {"step": 9}}
        state.debug_copy_from(worker, given)
        given["w"][0] = 7
        got = state.debug_get_from_remote(worker)
        assert got["w"].numpy().tolist() == [1] and got[(1, 2), 3] == {"step": 9}


def test_what_a_dict_holds_may_be_lost(session):
    @session.define
    def pack(t):
        return {"t": t}

    x = session.broadcast(np.ones(4, "float32"))
    session.sync_all()
    packed = session.get_global_func("test.identity")([x]), pack(x)
    session.sync_all()
    session.allreduce(session.empty((5,), "float32"), x)
    with pytest.raises(tutti.RemoteError, match="5 elements, dst 4"):
        session.sync_all()
    for value in packed:
        with pytest.raises(tutti.RemoteError, match="5 elements, dst 4|lost"):
            value.debug_get_from_remote(0)


def test_a_dict_s_values_may_run_anybody_s_code(session):
    """Python's collector among it, which may end other sessions, and this one's objects."""
    class Array:
        def __dlpack__(self, **_):
            gc.collect()
            session.get_global_func("test.identity")(1)
            return np.ones(2).__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    made = session.get_global_func("test.identity")({"a": Array()})
    assert made.debug_get_from_remote(session.num_workers - 1)["a"].numpy().tolist() == [1, 1]


def test_dicts_that_can_not_travel(session):
    identity = session.get_global_func("test.identity")
    itself = {}
    itself["itself"] = itself
    for value, message in [(itself, "nested too deep"), ({"o": object()}, "opaque object object can't travel"),
                           ({"i": 2**70}, "call_packed: argument 1: the integer .* does not fit into 64 bits"), ({"a": np.ones(10000)}, "80000 bytes")]:
        with pytest.raises(tutti.UsageError, match=message):
            identity(value)

    @session.define
    def make():
        return {"o": object()}

    made = make()
    assert type(made.debug_get_from_remote(0)["o"]) is object

    @session.define
    def make_large():
        return {1: 2**70}

    assert make_large().debug_get_from_remote(0) == {1: 2**70}  # as it is
    if session.num_workers > 1:
        with pytest.raises(tutti.UsageError, match="opaque object object can't travel"):
            made.debug_get_from_remote(1)
    session.sync_all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays(session, dtype):
    array = (np.arange(24).reshape(2, 3, 4) % 7).astype(dtype)
    made = session.copy_to_worker_0(array)
    assert np.array_equal(made.debug_get_from_remote(0).numpy(), array)
    everywhere = session.empty(array.shape, dtype)
    session.broadcast_from_worker0(made, everywhere)
    last = everywhere.debug_get_from_remote(session.num_workers - 1)
    assert last.dtype == dtype and last.shape == (2, 3, 4) and last.device == tutti.cpu(0)
    assert last.numpy().dtype == array.dtype and np.array_equal(last.numpy(), array)
    back = np.zeros_like(array)
    session.copy_from_worker_0(back, everywhere)
    session.sync_worker_0()
    assert np.array_equal(back, array)


def test_lanes(session):
    """One element is several numbers: numpy has them as a last axis."""
    made = session.empty((2, 3), "float16x4")
    last = session.num_workers - 1
    host = tutti.empty((2, 3), "float16x4")
    assert np.asarray(host).shape == (2, 3, 4)
    assert host.dtype == "float16x4" and host.numpy().shape == (2, 3, 4) and host.numpy().dtype == "float16"
    host.numpy()[:] = np.arange(24).reshape(2, 3, 4)
    made.debug_copy_from(last, host)
    assert np.array_equal(made.debug_get_from_remote(last).numpy(), np.arange(24).reshape(2, 3, 4))
    session.allreduce(made, made)
    with pytest.raises(tutti.RemoteError, match="float16x4 has no sum"):
        session.sync_all()


def test_bfloat16(session):
    made = session.empty((4,), "bfloat16")
    bits = np.array([0x3F80, 0x4000, 0xBF80, 0x7F80], "uint16")  # 1, 2, -1, inf
    session.sync_all()
    for worker in range(session.num_workers):
        t = tutti.empty((4,), "bfloat16")
        np.asarray(t).view("uint16")[:] = bits
        made.debug_copy_from(worker, t)
    session.allreduce(made, made, "max")
    back = made.debug_get_from_remote(0)
    assert back.dtype == "bfloat16" and np.array_equal(np.asarray(back.numpy()).view("uint16"), bits)


def test_strided_arrays_are_copied(session):
    array = np.arange(12, dtype="float32").reshape(3, 4)
    assert np.array_equal(session.copy_to_worker_0(array.T).debug_get_from_remote(0).numpy(), array.T)
    assert np.array_equal(session.broadcast(array[:, ::2]).debug_get_from_remote(session.num_workers - 1).numpy(), array[:, ::2])
    assert np.array_equal(session.copy_to_worker_0(array[::-1]).debug_get_from_remote(0).numpy(), array[::-1])


def test_strided_arrays_to_write_into_are_refused(session):
    remote = session.copy_to_worker_0(np.ones((2, 2), "float32"))
    with pytest.raises(tutti.UsageError, match="numpy.ascontiguousarray"):
        session.copy_from_worker_0(np.zeros((2, 4), "float32")[:, ::2], remote)


def test_arrays_that_are_not_to_be_written_are_copied(session):
    read_only = np.frombuffer(b"\x01\x02\x03", "uint8")
    made = session.get_global_func("test.identity")(read_only)
    session.get_global_func("test.scale")(made, 2)
    assert made.debug_get_from_remote(0).numpy().tolist() == [2, 4, 6] and read_only.tolist() == [1, 2, 3]


def test_zero_and_no_dimensions(session):
    scalar = session.broadcast(np.array(2.5))
    got = scalar.debug_get_from_remote(session.num_workers - 1)
    assert got.shape == () and got.numpy() == 2.5
    assert session.broadcast(np.empty((0, 3))).debug_get_from_remote(0).shape == (0, 3)


def test_objects_of_numpy_that_are_no_arrays(session):
    made = session.define(lambda_free_generator)()
    session.sync_all()
    assert isinstance(made.debug_get_from_remote(0), np.random.Generator)


def lambda_free_generator():
    return np.random.default_rng(3)


def test_buffers_of_views():
    made = tutti.from_dlpack(np.arange(6.0).reshape(2, 3).T)
    with pytest.raises(BufferError, match="strided"):
        io.BytesIO().write(made)
    assert np.asarray(made).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_lists_without_end(session):
    endless = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        session.get_global_func("test.identity")(endless)
    with pytest.raises(tutti.UsageError, match="longdouble|float128"):
        session.get_global_func("test.identity")(np.longdouble(1))


def test_what_no_array_can_be(session):
    with pytest.raises(tutti.UsageError):
        session.copy_to_worker_0(np.empty(3, dtype=[]))
    with pytest.raises(tutti.UsageError, match="byte order"):
        session.copy_to_worker_0(np.ones(3, ">f4"))
    with pytest.raises(tutti.UsageError, match="object"):
        session.copy_to_worker_0(np.array([object()]))
    read_only = np.ones(3)
    read_only.flags.writeable = False
    remote = session.copy_to_worker_0(read_only)
    with pytest.raises(tutti.UsageError, match="read-only"):
        session.copy_from_worker_0(read_only, remote)
    assert remote.debug_get_from_remote(0).numpy().sum() == 3


def test_tensors_outside_sessions():
    array = np.arange(6, dtype="float32").reshape(2, 3)
    made = tutti.tensor(array)
    assert repr(made) == "Tensor((2, 3), float32, cpu(0))" and made.shape == (2, 3) and made.ndim == 2 and made.size == 6 and len(made) == 2
    array[:] = 0
    assert made.numpy().sum() == 15  # a copy
    view = made.numpy()
    view[0, 0] = 10
    assert np.from_dlpack(made)[0, 0] == 10 and np.asarray(made)[0, 0] == 10  # all on one memory
    del made
    gc.collect()
    assert view.sum() == 25
    source = np.arange(3)
    shared = tutti.from_dlpack(source)
    source[0] = 7
    assert shared.numpy()[0] == 7
    filled = tutti.empty(3, "int64")
    assert filled.copyfrom(source) is filled and filled.numpy()[0] == 7
    with pytest.raises(tutti.UsageError):
        filled.copyfrom(np.arange(4))
    with pytest.raises(tutti.UsageError, match="float31"):
        tutti.empty((1,), "float31")
    with pytest.raises(tutti.UsageError, match="ints"):
        tutti.empty((1.5,))
    bools = tutti.tensor(np.array([True, False]))
    assert bools.numpy().dtype == bool and bytes(memoryview(bools)) == b"\x01\x00"


def test_objects_stay_on_their_worker(session):
    made = session.get_global_func("test.make_object")()
    worker_of = session.get_global_func("test.look_into")(made)
    assert [worker_of.debug_get_from_remote(w) for w in range(session.num_workers)] == list(range(session.num_workers))
    assert made.debug_get_from_remote(0).worker == 0
    if session.num_workers > 1:
        with pytest.raises(tutti.UsageError, match="opaque object .*Mine can't travel"):
            made.debug_get_from_remote(1)


def test_closures_are_values(session):
    triple = session.get_global_func("test.make_closure")(3)
    assert session.get_global_func("test.call")(triple, 14).debug_get_from_remote(session.num_workers - 1) == 42
    assert session.call_packed(triple, 5).debug_get_from_remote(0) == 15
    power = session.get_global_func("test.make_partial")(2)
    assert session.call_packed(power, 5).debug_get_from_remote(session.num_workers - 1) == 32


def test_results_are_shared_with_numpy(session):
    made = session.get_global_func("test.make_array")(5)
    session.get_global_func("test.scale")(made, 2.0)
    got = session.get_global_func("test.total")(made)
    assert [got.debug_get_from_remote(w) for w in range(session.num_workers)] == [10.0 * w for w in range(session.num_workers)]


def test_what_can_t_travel(session):
    f = session.get_global_func("test.identity")
    for odd in (object(), {1: object()}, [1, object()], lambda: 1):
        with pytest.raises(ValueError, match="argument 1"):
            f(odd)
    with pytest.raises(ValueError, match="64 bits"):
        f(2**63)
    with pytest.raises(ValueError, match="64"):
        f(np.ones(64 * 1024))
    assert f(1).debug_get_from_remote(0) == 1


def test_global_functions():
    @tutti.register_global_func("test.local")
    def local(a, b=2):
        return a + b

    assert tutti.get_global_func("test.local")(1, 5) == 6
    assert tutti.get_global_func("test.local")(1) == 3
    assert tutti.get_global_func("no.such", allow_missing=True) is None
    with pytest.raises(ValueError, match="no.such"):
        tutti.get_global_func("no.such")
    with pytest.raises(ValueError, match="test.local"):
        tutti.register_global_func("test.local", local)
    tutti.register_global_func("test.local", lambda: 9, override=True)
    assert tutti.get_global_func("test.local")() == 9
    with pytest.raises(ZeroDivisionError):  # Python's own exception, not a copy
        tutti.register_global_func("test.zero", lambda: 1 / 0, override=True)
        tutti.get_global_func("test.zero")()
    with pytest.raises(ValueError, match="callable"):
        tutti.register_global_func("test.none", 3)
    made = []
    tutti.register_global_func("test.append", made.append, override=True)
    tutti.get_global_func("test.append")({"any": "thing"})
    assert made == [{"any": "thing"}]


def test_references_dropped_anywhere(session):
    """By the collector, on another thread, in the middle of calls."""
    f = session.get_global_func("test.add")
    stop = threading.Event()

    def collect():
        while not stop.is_set():
            gc.collect()

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        for i in range(300):
            cycle = [f(i, 1)]
            cycle.append(cycle)
            del cycle
        session.sync_all()
    finally:
        stop.set()
        thread.join()
    assert f(1, 1).debug_get_from_remote(0) == 2
