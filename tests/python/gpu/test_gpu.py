"""Arrays on GPUs, by the session's own operations: on stand-ins for the driver and NCCL, or on real ones (tests/gpu/check.sh)."""

import numpy as np
import pytest
from conftest import WORKERS, make_session

import tutti
from tutti.distributed import DeviceMesh


@pytest.fixture
def session():
    with make_session() as made:
        made.init_ccl("nccl")
        made.import_python_module("gpu_functions")
        yield made


def test_arrays_lie_there(session):
    x = session.broadcast(np.arange(1000, dtype="float32"))
    total = session.empty((1000,), "float32")
    session.allreduce(x, total)
    for worker in range(WORKERS):
        np.testing.assert_array_equal(total.debug_get_from_remote(worker).numpy(), WORKERS * np.arange(1000, dtype="float32"))
    parts = session.scatter(np.arange(2 * WORKERS, dtype="int64").reshape(WORKERS, 2))
    assert [list(parts.debug_get_from_remote(w).numpy()) for w in range(WORKERS)] == [[2 * w, 2 * w + 1] for w in range(WORKERS)]
    back = np.empty(1000, "float32")
    session.copy_from_worker_0(back, total)
    session.sync_worker_0()
    np.testing.assert_array_equal(back, WORKERS * np.arange(1000, dtype="float32"))
    total.debug_copy_from(WORKERS - 1, np.ones(1000, "float32"))
    assert total.debug_get_from_remote(WORKERS - 1).numpy().sum() == 1000


def test_sharded_tensors_lie_there(session):
    array = np.arange(35, dtype="float32").reshape(7, 5)
    rows = session.distribute(array, DeviceMesh((WORKERS,)), "S[0]")
    columns = rows.redistribute("S[1]")
    devices = session.get_global_func("gpu.device_of")(columns.parts)
    assert [str(devices.debug_get_from_remote(w)) for w in range(WORKERS)] == [f"cuda({w})" for w in range(WORKERS)]
    np.testing.assert_array_equal(columns.full().numpy(), array)


def test_arithmetic_there_needs_cupy(session):
    x = session.distribute(np.ones(10, "float32"), DeviceMesh((WORKERS,)), "S[0]")
    try:
        import cupy  # noqa: F401
    except ImportError:
        doubled = x + x
        with pytest.raises(tutti.RemoteError, match=r"worker 0: arithmetic of tensors on cuda\(0\) needs cupy there"):
            session.sync_all()
        del doubled
    else:
        assert (x + x).sum().item() == 20


def test_functions_use_them(session):
    where = session.get_global_func("gpu.where")()
    for worker in range(WORKERS):
        device, has_stream = where.debug_get_from_remote(worker)
        assert (str(device), has_stream) == (f"cuda({worker})", True)
    x = session.broadcast(np.ones(10, "float32"))
    session.get_global_func("gpu.sum_and_double")(x)
    assert list(x.debug_get_from_remote(0).numpy()) == [2 * WORKERS] * 10


def test_the_host_can_t_touch_them(session):
    x = session.broadcast(np.ones(10, "float32"))
    session.get_global_func("gpu.touch")(x)
    with pytest.raises(tutti.RemoteError, match=r"numpy\(\): the tensor lies on cuda"):
        session.sync_all()


def test_others_take_them_in_the_order_of_streams(session):
    x = session.broadcast(np.zeros(1000, "float32"))
    session.get_global_func("gpu.read_elsewhere")(x, 50)
    taken = session.get_global_func("gpu.take")(x)
    session.sync_all()
    for worker in range(WORKERS):
        assert list(taken.debug_get_from_remote(worker).numpy()) == [49] * 1000
    told = session.get_global_func("gpu.interface")(x)
    assert list(told.debug_get_from_remote(0)) == [[1000], "<f4", True, 3, True]


def test_they_are_made_by_workers(session):
    assert list(session.get_global_func("gpu.made")().debug_get_from_remote(WORKERS - 1).numpy()) == list(range(5))
