"""Tensors of torch, there and back."""

import pytest
import torch

import tutti

DTYPES = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64,
          torch.complex64, torch.complex128]


@pytest.fixture
def session():
    with tutti.ThreadedSession(3) as made:
        yield made


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip(session, dtype):
    t = torch.arange(12).reshape(3, 4).to(dtype)
    remote = session.broadcast(t)
    for w in range(3):
        got = remote.debug_get_from_remote(w)
        assert got.dtype == str(dtype).removeprefix("torch.")
        back = torch.from_dlpack(got)
        assert back.dtype == dtype and torch.equal(back, t)


def test_bool(session):
    t = torch.tensor([True, False, True])
    got = session.broadcast(t.numpy()).debug_get_from_remote(2)
    assert torch.equal(torch.from_numpy(got.numpy()), t)


def test_memory_is_shared():
    t = torch.zeros(4)
    view = tutti.from_dlpack(t)
    view.numpy()[2] = 7
    assert t.tolist() == [0, 0, 7, 0]
    back = torch.from_dlpack(view)
    back += 1
    assert t.tolist() == [1, 1, 8, 1] and back.data_ptr() == t.data_ptr()


def test_others(session):
    t = torch.arange(6.0).reshape(2, 3).t()  # columns
    assert torch.equal(torch.from_dlpack(session.broadcast(t).debug_get_from_remote(1)), t)
    with pytest.raises((ValueError, RuntimeError, BufferError), match="grad"):
        session.broadcast(torch.zeros(2, requires_grad=True))
    out = torch.empty(3, 2)
    remote = session.copy_to_worker_0(t.contiguous())
    session.copy_from_worker_0(out, remote)
    session.sync_worker_0()
    assert torch.equal(out, t)


def test_in_a_worker_function(session):
    @session.define
    def square(x):
        import torch

        x = torch.from_dlpack(x)
        return x @ x.t()

    x = torch.arange(6.0).reshape(2, 3)
    got = square(session.broadcast(x)).debug_get_from_remote(1)
    assert torch.equal(torch.from_dlpack(got), x @ x.t())
