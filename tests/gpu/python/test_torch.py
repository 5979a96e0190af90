"""torch's tensors on a real GPU: shared, not copied, in the order of both sides' streams. check.sh runs it."""

import numpy as np
import pytest
import torch

import tutti
from tutti import worker

ADDRESSES = {}


@tutti.register_global_func("torch.product")
def product(x):
    """Goes on with an array of tutti's: torch's work is under way when this returns."""
    shared = torch.from_dlpack(x)
    assert shared.data_ptr() == x.__cuda_array_interface__["data"][0]
    ones = torch.ones(4096, 4096, device=shared.device)
    for _ in range(20):
        ones = ones @ ones / 4096
    shared.mul_(2 * ones[0, 0])
    return tutti.from_dlpack(shared)


@tutti.register_global_func("torch.on_the_worker_s_stream")
def on_the_worker_s_stream(x):
    with torch.cuda.stream(torch.cuda.ExternalStream(worker.stream())):
        torch.from_dlpack(x).add_(1)


@tutti.register_global_func("torch.made")
def made(name):
    tensor = torch.arange(100, device="cuda").to(getattr(torch, name))
    ADDRESSES[name] = tensor.data_ptr()
    return tutti.from_dlpack(tensor)


@tutti.register_global_func("torch.seen")
def seen(x, name):
    tensor = torch.from_dlpack(x)
    assert tensor.data_ptr() == ADDRESSES[name] and tensor.dtype == getattr(torch, name), (tensor.dtype, name)
    return [float(value) for value in tensor.float().cpu()]


@pytest.fixture
def session():
    with tutti.ThreadedSession(1) as made:
        made.init_ccl("nccl")
        yield made


def test_torch_goes_on_with_an_array(session):
    for value in range(1, 6):
        x = session.broadcast(np.full(1 << 20, value, "float32"))
        session.allreduce(x, x)
        doubled = session.get_global_func("torch.product")(x)
        session.allreduce(doubled, doubled)
        assert set(doubled.debug_get_from_remote(0).numpy()) == {2.0 * value}
        assert set(x.debug_get_from_remote(0).numpy()) == {2.0 * value}  # the same memory


def test_torch_works_on_the_worker_s_stream(session):
    x = session.broadcast(np.zeros(1000, "float32"))
    for _ in range(10):
        session.get_global_func("torch.on_the_worker_s_stream")(x)
        session.allreduce(x, x)
    assert set(x.debug_get_from_remote(0).numpy()) == {10.0}


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"])
def test_types_come_back(session, name):
    x = session.get_global_func("torch.made")(name)
    session.allreduce(x, x, "max")
    expected = [float(i > 0) if name == "bool" else float(i) for i in range(100)]
    assert session.get_global_func("torch.seen")(x, name).debug_get_from_remote(0) == expected


def test_torch_s_memory_goes_back(session):
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        session.get_global_func("torch.made")("float64")
    session.sync_all()
    session.broadcast(np.zeros(10, "float32"))
    session.sync_all()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_cupy_works_on_the_worker_s_stream(session):
    cupy = pytest.importorskip("cupy")

    @session.define
    def add(x):
        with cupy.cuda.ExternalStream(worker.stream()):
            cupy.from_dlpack(x)[:] += 1

    x = session.broadcast(np.zeros(1000, "float32"))
    for _ in range(10):
        session.call_packed(add, x)
        session.allreduce(x, x)
    assert set(x.debug_get_from_remote(0).numpy()) == {10.0}
