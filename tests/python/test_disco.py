"""What TVM Disco's own tests check (test_session, test_ccl, and of test_callback what needs no compiler), with their shapes and calls."""

import numpy as np
import pytest
from conftest import KIND, WORKERS, make_session

import tutti
from tutti import disco

needs_two = pytest.mark.skipif(WORKERS < 2, reason="of one worker there is nothing to exchange")
ccls = pytest.mark.parametrize("ccl", ["mpi", "local"])


@pytest.fixture
def two():
    """Two workers, as Disco's tests have."""
    with make_session(min(2, WORKERS)) as made:
        yield made


def with_ccl(session, ccl):
    session.init_ccl(ccl, *range(session.num_workers))
    return session


# test_session


@pytest.mark.parametrize("value", [1, 3.25, "hello", b"bytes", None, True])
def test_values(session, value):
    result = session.get_global_func("test.echo")(value)
    for w in range(session.num_workers):
        got = result.debug_get_from_remote(w)
        assert got == value and type(got) is type(value)


def test_tensors(session):
    device = tutti.cpu(0)
    array = np.arange(6).astype("float32").reshape(2, 3)
    remote = session.empty(array.shape, "float32", device=device)
    remote.debug_copy_from(0, array)
    np.testing.assert_equal(remote.debug_get_from_remote(0).numpy(), array)
    mine = session.get_global_func("test.add_one")(session.broadcast(array))
    for w in range(session.num_workers):
        np.testing.assert_equal(mine.debug_get_from_remote(w).numpy(), array + 1)


def test_copy_to_worker_0_and_back(session):
    array = np.arange(12, dtype="float32").reshape(3, 4)
    remote = session.copy_to_worker_0(tutti.tensor(array))
    back = tutti.empty((3, 4), "float32")
    session.copy_from_worker_0(back, remote)
    session._sync_worker(0)
    np.testing.assert_equal(back.numpy(), array)
    made = session.empty((3, 4), "float32", worker0_only=True)
    assert session.copy_to_worker_0(array * 2, made) is not None
    session.copy_from_worker_0(back, made)
    session.sync_worker_0()
    np.testing.assert_equal(back.numpy(), array * 2)


def test_shapes(session):
    result = session.get_global_func("runtime.disco.worker_id")()
    assert [result.debug_get_from_remote(w) for w in range(session.num_workers)] == [(w,) for w in range(session.num_workers)]
    shape = session.get_global_func("test.echo")(tutti.Shape((1, 2, 3)))
    assert tuple(shape.debug_get_from_remote(0)) == (1, 2, 3)


def test_debug_copy_differs_by_worker(session):
    x = session.empty((2,), "float32")
    for w in range(session.num_workers):
        x.debug_copy_from(w, np.full(2, w, "float32"))
    assert [x.debug_get_from_remote(w).numpy().tolist() for w in range(session.num_workers)] == [[w, w] for w in range(session.num_workers)]


def test_sessions_of_one_two_and_four():
    """Overlapping live sessions, each left to the collector."""
    kinds = [disco.ThreadedSession, disco.ProcessSession] if KIND != "mpi" else [disco.ThreadedSession]
    for kind in kinds:
        live = []
        for n in (1, 2, 4):
            made = kind(num_workers=n)
            assert made.num_workers == n
            live.append((made, made.get_global_func("runtime.disco.worker_rank")()))
        for made, rank in live:
            assert rank.debug_get_from_remote(made.num_workers - 1) == made.num_workers - 1


# test_ccl


@ccls
def test_init(two, ccl):
    with_ccl(two, ccl).sync_all()
    assert two.ccl == ccl


def test_the_ccl_that_is_compiled_in(two):
    ccl = tutti.get_global_func("runtime.disco.compiled_ccl")()
    with_ccl(two, ccl).sync_all()
    assert two.ccl == two.get_global_func("runtime.disco.compiled_ccl")().debug_get_from_remote(0) == ccl == "mpi"


@needs_two
@ccls
def test_allreduce(two, ccl):
    session = with_ccl(two, ccl)
    one, other = np.arange(12, dtype="float32").reshape(3, 4), np.arange(start=1, stop=-11, step=-1, dtype="float32").reshape(3, 4)
    x, y = session.empty((3, 4), "float32"), session.empty((3, 4), "float32")
    x.debug_copy_from(0, one)
    x.debug_copy_from(1, other)
    for op, expected in {"sum": one + other, "prod": one * other, "min": np.minimum(one, other), "max": np.maximum(one, other), "avg": (one + other) * 0.5}.items():
        session.allreduce(x, y, op=op)
        for w in (0, 1):
            np.testing.assert_equal(y.debug_get_from_remote(w).numpy(), expected)


@ccls
def test_groups(ccl):
    if WORKERS != 4:
        pytest.skip("four workers in two groups")
    with with_ccl(make_session(4, num_groups=2), ccl) as session:
        arrays = [np.arange(i, i + 12, dtype="float32").reshape(3, 4) for i in (0, 1, 10, 11)]
        x, y = session.empty((3, 4), "float32"), session.empty((3, 4), "float32")
        for w, array in enumerate(arrays):
            x.debug_copy_from(w, array)
        session.allreduce(x, y, op="sum", in_group=True)
        for w in range(4):
            np.testing.assert_equal(y.debug_get_from_remote(w).numpy(), arrays[w // 2 * 2] + arrays[w // 2 * 2 + 1])
        gathered = session.empty((2, 3, 4), "float32")
        session.allgather(x, gathered, in_group=True)
        for w in range(4):
            np.testing.assert_equal(gathered.debug_get_from_remote(w).numpy(), np.stack(arrays[w // 2 * 2:w // 2 * 2 + 2]))
        whole = session.broadcast(arrays[3], in_group=True)
        np.testing.assert_equal(whole.debug_get_from_remote(2).numpy(), arrays[3])
        parts = session.scatter(np.stack(arrays[:2]), in_group=True)
        for w in range(4):
            np.testing.assert_equal(parts.debug_get_from_remote(w).numpy(), arrays[w % 2])
        to_first = session.empty((2, 3, 4), "float32", worker0_only=True, in_group=True)
        session.gather_to_worker0(x, to_first, in_group=True)
        for first in (0, 2):
            np.testing.assert_equal(to_first.debug_get_from_remote(first).numpy(), np.stack(arrays[first:first + 2]))
        everyone = session.empty((4, 3, 4), "float32", worker0_only=True, in_group=False)
        session.gather_to_worker0(x, everyone, in_group=False)
        np.testing.assert_equal(everyone.debug_get_from_remote(0).numpy(), np.stack(arrays))
        session.get_global_func("runtime.disco." + ccl + ".test_send_to_next_group_recv_from_prev_group")(x)
        for w in (2, 3):
            np.testing.assert_equal(x.debug_get_from_remote(w).numpy(), arrays[w - 2])
        session.get_global_func("runtime.disco." + ccl + ".test_worker2_sends_to_worker0")(x)
        np.testing.assert_equal(x.debug_get_from_remote(0).numpy(), arrays[0])


@needs_two
@ccls
def test_allgather(two, ccl):
    session = with_ccl(two, ccl)
    array = np.arange(36, dtype="float32")
    x, y = session.empty((3, 3, 2), "float32"), session.empty((3, 4, 3), "float32")
    x.debug_copy_from(0, array[:18].reshape(3, 3, 2))
    x.debug_copy_from(1, array[18:].reshape(3, 3, 2))
    session.allgather(x, y)
    for w in (0, 1):
        np.testing.assert_equal(y.debug_get_from_remote(w).numpy(), array.reshape(3, 4, 3))


@needs_two
@ccls
@pytest.mark.parametrize("through_worker0", [True, False])
def test_broadcast(two, ccl, through_worker0):
    session = with_ccl(two, ccl)
    array = np.arange(12, dtype="float32").reshape(3, 4)
    if through_worker0:
        src, dst = session.empty((3, 4), "float32", worker0_only=True), session.empty((3, 4), "float32")
        src.debug_copy_from(0, array)
        session.broadcast_from_worker0(src, dst)
    else:
        dst = session.broadcast(array)
    for w in (0, 1):
        np.testing.assert_equal(dst.debug_get_from_remote(w).numpy(), array)


@needs_two
@ccls
@pytest.mark.parametrize("through_worker0", [True, False])
def test_scatter_also_with_another_shape(two, ccl, through_worker0):
    session = with_ccl(two, ccl)
    array = np.arange(36, dtype="float32").reshape(2, 6, 3)
    for shape in ((6, 3), (3, 3, 2)):
        dst = session.empty(shape, "float32")
        if through_worker0:
            src = session.empty((2, 6, 3), "float32", worker0_only=True)
            src.debug_copy_from(0, array)
            session.scatter_from_worker0(src, dst)
        else:
            session.scatter(array, dst)
        for w in (0, 1):
            np.testing.assert_equal(dst.debug_get_from_remote(w).numpy(), array[w].reshape(shape))


@needs_two
@ccls
def test_gather(two, ccl):
    session = with_ccl(two, ccl)
    array = np.arange(36, dtype="float32")
    x, y = session.empty((3, 3, 2), "float32"), session.empty((3, 4, 3), "float32", worker0_only=True)
    x.debug_copy_from(0, array[:18].reshape(3, 3, 2))
    x.debug_copy_from(1, array[18:].reshape(3, 3, 2))
    session.gather_to_worker0(x, y)
    np.testing.assert_equal(y.debug_get_from_remote(0).numpy(), array.reshape(3, 4, 3))


@needs_two
@ccls
def test_mlp(two, ccl):
    """Column- and row-split weights, one allreduce."""
    session = with_ccl(two, ccl)
    session.import_python_module("functions")
    rng = np.random.default_rng(1)
    x, w1, w2 = (rng.standard_normal(shape).astype("float32") for shape in ((4, 8), (8, 16), (16, 8)))
    dot = session.get_global_func("test.dot")
    halves1 = session.scatter(np.stack(np.split(w1, 2, axis=1)))
    halves2 = session.scatter(np.stack(np.split(w2, 2, axis=0)))
    part = dot(dot(session.broadcast(x), halves1), halves2)
    whole = session.empty((4, 8), "float32")
    session.allreduce(part, whole)
    np.testing.assert_allclose(whole.debug_get_from_remote(1).numpy(), x @ w1 @ w2, rtol=1e-4, atol=1e-4)


# test_callback


def test_a_callback_made_on_workers(session):
    """A function that workers make, passed to a function that calls it."""
    fetch = session.get_global_func("test.make_fetch")(10)
    transformed = session.get_global_func("test.transform")(session.get_global_func("runtime.disco.worker_rank")(), fetch)
    for w in range(session.num_workers):
        got = transformed.debug_get_from_remote(w)
        assert [t.numpy().tolist() for t in got] == [[10 + w] * 2, [20 + w] * 3]
