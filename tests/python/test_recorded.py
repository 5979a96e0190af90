"""session.record(): programs that are recorded once and replayed."""

import gc
import weakref

import numpy as np
import pytest
from conftest import KIND, WORKERS

import tutti


def test_a_program(session):
    add = session.get_global_func("test.add")
    with session.record() as program:
        x, y = program.slot("x"), program.slot("y")
        total = add(x, y)
        program.returns(add(total, 1))
    assert len(program) == 2 and program.slots == ["x", "y"]
    assert program.name.startswith("test_recorded.py:") and repr(program) == f"Program({program.name}, 2 steps, slots: x, y)"
    first, second = program(1, 2), program(y=20, x=10)
    assert [first.debug_get_from_remote(w) for w in range(WORKERS)] == [4] * WORKERS
    assert second.debug_get_from_remote(WORKERS - 1) == 31 and total.debug_get_from_remote(0) == 30
    assert program.repeat(5, 1, y=1).debug_get_from_remote(0) == 5


def test_values_of_slots(session):
    with session.record("values") as program:
        x = program.slot()
        program.returns(session.get_global_func("tutti.echo")(x))
    for value in (None, True, 7, 1.5, "text", b"bytes", [1, "two", [3.0]], {"a": 1}, tutti.cpu(0)):
        assert program(value).debug_get_from_remote(WORKERS - 1) == value
    assert np.array_equal(program(np.arange(6).reshape(2, 3)).debug_get_from_remote(0).numpy(), np.arange(6).reshape(2, 3))
    assert program(session.get_global_func("test.add")(1, 2)).debug_get_from_remote(0) == 3
    for wrong in ((), (1, 2)):
        with pytest.raises(tutti.UsageError, match=rf"program values: expected 1 values \(1\), got {len(wrong)}"):
            program(*wrong)
    with pytest.raises(tutti.UsageError, match="program values has no slot 'z'; its slots: 1"):
        program(z=1)
    with pytest.raises(tutti.UsageError, match="slot '1' is given twice"):
        program(1, **{"1": 2})


def test_several_results_and_loops(session):
    add = session.get_global_func("test.add")
    with session.record() as program:
        a, b = program.slot("a"), program.slot("b")
        following = add(a, b)
        program.assign(a, b)
        program.assign(b, following)
        program.returns(a, b)
    x, y = program(2, 3)
    assert (x.debug_get_from_remote(0), y.debug_get_from_remote(WORKERS - 1)) == (3, 5)
    program.repeat(30, 0, 1)
    assert a.debug_get_from_remote(0) == 832040


def test_functions_in_python(session):
    def ready(counter):
        counter.numpy()[0] += 1
        return bool(counter.numpy()[0] >= 4)

    def double(array):
        array.numpy()[:] *= 2

    array, counter = session.broadcast(np.ones(3)), session.broadcast(np.zeros(1))
    ready, double = session.define(ready), session.define(double)
    with session.record() as program:
        double(array)
        session.allreduce(array, array)
        program.stop_when(ready(counter))
    assert program.repeat(100).debug_get_from_remote(0) == 4
    assert np.array_equal(array.debug_get_from_remote(WORKERS - 1).numpy(), np.full(3, (2.0 * WORKERS) ** 4))


def test_arrays_of_the_controller(session):
    source, back = np.zeros(4), np.zeros(4)
    with session.record() as program:
        everywhere = session.broadcast(source)
        session.allreduce(everywhere, everywhere)
        session.copy_from_worker_0(back, everywhere)
    for i in range(3):
        source[:] = i
        program()
        session.sync_all()
        assert np.array_equal(back, np.full(4, i * WORKERS))


def test_dtensors(session):
    mesh = tutti.distributed.DeviceMesh((WORKERS,))
    x = session.distribute(np.arange(24.0).reshape(8, 3), mesh, "S[0]")
    with session.record() as program:
        y = (x * 2 + 1).redistribute("R")
        with pytest.raises(tutti.UsageError, match="full can't be recorded"):
            y.full()
        program.returns(y)
    assert np.array_equal(program().debug_get_from_remote(WORKERS - 1).numpy(), np.arange(24.0).reshape(8, 3) * 2 + 1)
    assert np.array_equal(y.full().numpy(), np.arange(24.0).reshape(8, 3) * 2 + 1)


def test_what_cannot_be_recorded(session):
    add = session.get_global_func("test.add")
    three = add(1, 2)
    program = session.record()
    with pytest.raises(tutti.UsageError, match="not recorded yet"):
        program()
    with pytest.raises(tutti.UsageError, match="inside `with session.record"):
        program.slot()
    assert not program and not session.is_recording
    with program:
        assert repr(program) == "Program(being recorded)" and not program and session.is_recording
        with pytest.raises(tutti.UsageError, match="strided"):
            session.broadcast(np.zeros((4, 4)).T)
        with pytest.raises(tutti.UsageError, match="define can't be recorded"):
            session.define(lambda: 1)
        for call in (session.sync_all, lambda: three.debug_get_from_remote(0), lambda: session.init_ccl("mpi"), session.shutdown,
                     lambda: session.record().__enter__(), lambda: session.import_python_module("os")):
            with pytest.raises(tutti.UsageError, match="can't be recorded"):
                call()
        four = add(three, 1)
    with pytest.raises(tutti.UsageError, match="recorded once"):
        program.__enter__()
    assert program and not session.is_recording
    program()
    assert four.debug_get_from_remote(0) == 4 and len(program) == 1


def test_a_body_that_raises_leaves_nothing(session):
    add = session.get_global_func("test.add")
    with pytest.raises(ZeroDivisionError):
        with session.record() as program:
            add(1, 2)
            1 / 0
    with pytest.raises(tutti.UsageError, match="not recorded"):
        program()
    assert repr(program) == "Program(not recorded)" and add(1, 2).debug_get_from_remote(0) == 3


def test_errors_say_where(session):
    def fail(x):
        if x == 3:
            raise KeyError("three")
        return x + 1

    fail = session.define(fail)
    with session.record("faulty") as program:
        x = program.slot("x")
        program.assign(x, fail(x))
    program.repeat(10, 0)
    with pytest.raises(tutti.RemoteError, match=r"step 1 of program faulty \(recorded at .*test_recorded.py:\d+\), iteration 4 of 10: .*three") as error:
        session.sync_all()
    assert error.value.failures[0].kind == "KeyError" and "in fail" in error.value.failures[0].traceback
    assert program.repeat(2, 0).debug_get_from_remote(0) == 2


def test_a_program_does_not_hold_its_session():
    session = tutti.ThreadedSession(2)
    with session.record() as program:
        session.barrier()
    gone = weakref.ref(program)
    session.shutdown()
    del session
    with pytest.raises(tutti.UsageError, match="shut down"):
        program()
    del program
    gc.collect()
    assert gone() is None
