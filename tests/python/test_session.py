import gc
import os
import weakref

import numpy as np
import pytest
from conftest import KIND, WORKERS, make_session

import tutti
from tutti import disco


def test_names_of_disco():
    assert disco.ThreadedSession is tutti.ThreadedSession and issubclass(disco.ProcessSession, disco.Session)
    assert issubclass(disco.DPackedFunc, disco.DRef) and issubclass(disco.DModule, disco.DRef)
    assert [action.name for action in disco.DiscoAction] == ["kShutDown", "kKillReg", "kGetGlobalFunc", "kCallPacked", "kSyncWorker", "kCopyFromWorker0",
                                                             "kCopyToWorker0", "kDebugGetFromRemote", "kDebugSetRegister"]
    assert list(disco.DiscoAction) == list(range(9)) and issubclass(disco.DiscoAction, int)


def test_what_things_say(session):
    assert repr(session) == f"Session({KIND}, {WORKERS} worker{'s' * (WORKERS > 1)}, 1 group, ccl=auto, nodes={session.num_nodes})"
    session.init_ccl("local")
    assert session.ccl == "local" and "ccl=local" in repr(session)
    made = session.get_global_func("test.add")
    assert repr(made).startswith("DPackedFunc(reg=") and KIND in repr(made)
    assert repr(made(1, 2)).startswith("DRef(reg=")
    assert session.num_workers == WORKERS and session.num_groups == 1


def test_handles_are_plain_objects(session):
    add = session.get_global_func("test.add")
    made = add(1, 2)
    gone = weakref.ref(made)
    del made
    assert gone() is None
    with pytest.raises(TypeError, match="keyword"):
        add(1, y=2)
    with pytest.raises(TypeError):
        tutti.DRef()
    with pytest.raises(TypeError):
        tutti.DPackedFunc(3)
    assert tutti.DPackedFunc(session.call_packed(session.get_global_func("test.make_closure"), 3), session=session)(5).debug_get_from_remote(0) == 15
    echo = session.get_global_func("test.echo")
    assert echo(np.arange(3)[::-1]).debug_get_from_remote(0).numpy().tolist() == [2, 1, 0]
    for array in (np.array([2, 3]), (2, 3), tutti.Shape(2, 3)):
        assert session.empty(array, "float32").debug_get_from_remote(0).shape == (2, 3)
    with pytest.raises(ValueError, match="surrogates"):
        echo("\ud800")
    with tutti.ThreadedSession(1) as other, pytest.raises(tutti.UsageError, match="session of the DRef"):
        tutti.DPackedFunc(echo, other)
    with pytest.raises(tutti.UsageError, match="session of the DRef"):
        tutti.DModule(echo, 3)
    assert isinstance(echo.reg_id, int) and echo.reg_id != session.empty((1,), "int8").reg_id
    with pytest.raises(AttributeError):
        echo.reg_id = 3
    many = session.get_global_func("test.count_arguments")
    assert [many(*range(n)).debug_get_from_remote(0) for n in (0, 4, 5, 40)] == [0, 4, 5, 40]

    class Mine(tutti.DPackedFunc):
        pass

    with pytest.raises(TypeError):
        tutti.DRef.__repr__(5)
    assert Mine(add)(3, 4).debug_get_from_remote(WORKERS - 1) == 7 and repr(Mine(add)).startswith("Mine(reg=")


def test_calls(session):
    add = session.get_global_func("test.add")
    first = add(1, 2)
    second = add(first, 10)
    assert [second.debug_get_from_remote(w) for w in range(WORKERS)] == [13] * WORKERS
    assert session._get_cached_method("test.add")(1, 1).debug_get_from_remote(0) == 2
    assert session._get_cached_method("test.add")("a", "b").debug_get_from_remote(WORKERS - 1) == "ab"


def test_ids_and_counts(session):
    places = session.get_global_func("test.places")()
    assert [places.debug_get_from_remote(w) for w in range(WORKERS)] == [[w, WORKERS, 0, WORKERS, 1] for w in range(WORKERS)]


def test_debug_copy_from(session):
    made = session.empty((3,), "float32")
    for w in range(WORKERS):
        made.debug_copy_from(w, np.full(3, w, "float32"))
    assert [made.debug_get_from_remote(w).numpy().tolist() for w in range(WORKERS)] == [[w] * 3 for w in range(WORKERS)]
    made.debug_copy_from(0, "a text")
    assert made.debug_get_from_remote(0) == "a text"
    for worker in (-1, WORKERS):
        with pytest.raises(IndexError):
            made.debug_copy_from(worker, 1)
        with pytest.raises(ValueError, match="expected 0 to"):
            made.debug_get_from_remote(worker)
        with pytest.raises(IndexError):
            session._sync_worker(worker)


def test_collectives(session):
    n = WORKERS
    x = session.get_global_func("test.make_array")(4)
    total = session.empty((4,), "float64")
    assert session.allreduce(x, total) is total
    assert total.debug_get_from_remote(n - 1).numpy().tolist() == [n * (n - 1) / 2] * 4
    assert session.allreduce(x, total, op="max").debug_get_from_remote(0).numpy().tolist() == [n - 1] * 4
    with pytest.raises(ValueError, match="median"):
        session.allreduce(x, total, op="median")
    gathered = session.empty((n, 4), "float64")
    assert session.allgather(x, gathered).debug_get_from_remote(n - 1).numpy()[:, 0].tolist() == list(range(n))
    parts = session.scatter(np.arange(2.0 * n).reshape(n, 2))
    assert [parts.debug_get_from_remote(w).numpy().tolist() for w in range(n)] == [[2.0 * w, 2.0 * w + 1] for w in range(n)]
    array = np.ones((n, 2))
    assert session.scatter(array, parts) is parts and session.broadcast(array[0], parts) is parts and session.copy_to_worker_0(array[0], parts) is parts
    session.scatter(np.arange(2.0 * n).reshape(n, 2), dst=parts)
    with pytest.raises(ValueError, match="shape"):
        session.scatter(np.ones((n + 1, 2)))
    whole = session.empty((n, 2), "float64", worker0_only=True)
    session.gather_to_worker0(parts, whole)
    assert whole.debug_get_from_remote(0).numpy().ravel().tolist() == list(range(2 * n))
    mine = session.empty((1,), "float64")
    source = session.broadcast(np.arange(float(n)))
    assert session.reduce_scatter(source, mine).debug_get_from_remote(n - 1).numpy()[0] == n * (n - 1)
    turned = session.empty((n,), "float64")
    assert session.all_to_all(source, turned).debug_get_from_remote(0).numpy().tolist() == [0.0] * n
    uneven = session.get_global_func("test.exchange_uneven")()
    for w in range(n):
        assert uneven.debug_get_from_remote(w).numpy().tolist() == [float(r) for r in range(n) for _ in range(w + r)]
    for chosen in ([n - 1], list(range(n - 1, -1, -1)), list(range(0, n, 2))):
        sums = session.get_global_func("test.sum_over")(tutti.Shape(chosen))
        assert [sums.debug_get_from_remote(w) for w in range(n)] == [float(sum(chosen)) if w in chosen else -1.0 for w in range(n)]
    session.barrier()
    session.sync_all()


def test_groups(groups):
    size = WORKERS // 2
    assert groups.num_groups == 2
    x = groups.get_global_func("test.make_array")(2)
    total = groups.allreduce(x, groups.empty((2,), "float64"))
    expected = [sum(range(size)), sum(range(size, WORKERS))]
    assert [total.debug_get_from_remote(w).numpy()[0] for w in (0, WORKERS - 1)] == expected
    whole = groups.allreduce(x, groups.empty((2,), "float64"), in_group=False)
    assert whole.debug_get_from_remote(0).numpy()[0] == sum(expected)


@pytest.mark.parametrize("ccl", ["mpi", "local", "auto"])
def test_init_ccl(session, ccl):
    session.init_ccl(ccl, *range(WORKERS))
    x = session.broadcast(np.ones(1000, "float32"))
    assert (session.allreduce(x, x).debug_get_from_remote(0).numpy() == WORKERS).all()


def test_collectives_by_hand(session):
    x = session.get_global_func("test.make_array")(3)
    got = session.get_global_func("test.exchange")(x, "sum")
    assert got.debug_get_from_remote(WORKERS - 1).numpy().tolist() == [WORKERS * (WORKERS - 1) / 2] * 3


def test_sessions_follow_each_other():
    for i in range(3):
        with make_session() as s:
            s.import_python_module("functions")
            assert s.get_global_func("test.add")(i, 1).debug_get_from_remote(WORKERS - 1) == i + 1
        s.shutdown()  # again: nothing
        with pytest.raises(tutti.UsageError, match="shut down"):
            s.sync_all()


def test_use_after_the_end():
    s = make_session()
    made = s.empty((1,), "float32")
    size = s.get_global_func("runtime.disco.world_size")
    s.shutdown()
    with pytest.raises(tutti.UsageError):
        made.debug_get_from_remote(0)
    with pytest.raises(tutti.UsageError, match="shut down"):
        s.call_packed(size)
    with tutti.ThreadedSession(1) as other, pytest.raises(tutti.UsageError, match="shut down"):
        s.call_packed(other.get_global_func("runtime.disco.world_size"))
    del s, made


def test_foreign_references(session):
    with tutti.ThreadedSession(1) as other:
        made = other.empty((1,), "float32")
        with pytest.raises(tutti.UsageError, match="another session"):
            session.get_global_func("test.identity")(made)
        with pytest.raises(tutti.UsageError, match="func.*another session"):
            session.call_packed(other.get_global_func("runtime.disco.world_size"))


def test_bad_arguments(session):
    with pytest.raises(ValueError):
        tutti.ThreadedSession(0)
    with pytest.raises(ValueError):
        tutti.ThreadedSession(4, 3)
    with pytest.raises(TypeError):
        session.allreduce(1, 2)
    for shape in ((-1,), (2**62, 3)):
        with pytest.raises(tutti.UsageError, match="shape|tensor"):
            session.empty(shape, "float32")
    with pytest.raises(ValueError, match="DRef"):
        session.broadcast(np.ones(1), dst=3)
    for take in (session.broadcast, session.scatter, session.copy_to_worker_0):
        with pytest.raises(tutti.UsageError, match="expected a host array, got a DRef; broadcast_from_worker0"):
            take(session.empty((1,), "float32"))
    for ids in (("a",), ([0, "a"],), ("a", "b"), (1.5,)):
        with pytest.raises(tutti.UsageError, match="init_ccl: device_ids: expected"):
            session.init_ccl("mpi", *ids)
    session.init_ccl("mpi", list(range(WORKERS)))
    with pytest.raises(ValueError, match="ranks|launch|job"):
        tutti.SocketSession(7, 3, 1, "localhost", 0)


def test_same_as(session):
    a, b = session.empty((1,), "float32"), session.empty((1,), "float32")
    function = tutti.DPackedFunc(a)
    assert a.same_as(a) and a.same_as(function) and not a.same_as(b) and not a.same_as(1)


def test_a_session_that_only_a_cycle_holds():
    """Under mpirun it has the ranks that the next one needs."""
    gc.disable()
    try:
        for _ in range(3):
            cycle = [make_session()]
            cycle.append(cycle)
            assert cycle[0].get_global_func("tutti.echo")(7).debug_get_from_remote(WORKERS - 1) == 7
            del cycle
        make_session().shutdown()
    finally:
        gc.enable()


def test_show(session):
    shown = session.show()
    assert [row[0] for row in shown.rows] == list(range(WORKERS)) and shown.rows[0][2] == os.getpid()
    assert len({row[2] for row in shown.rows}) == (1 if KIND == "thread" else WORKERS)
    assert "cpu(0)" in repr(shown) and repr(shown).splitlines()[1].split() == ["worker", "host", "pid", "device", "gpu", "cores"]
    assert shown._repr_html_().count("<tr>") == WORKERS + 1


def test_places(session):
    places = session.places()
    assert [place.host for place in places] == [row[1] for row in session.show().rows]
    assert set(places[0].cpus) <= set(range(os.cpu_count())) and isinstance(places[0].is_bound, bool)
    if KIND != "mpi":  # nobody has looked at the machine
        assert (places[0].gpu, places[0].nic, places[0].why, places[0].is_bound) == ("", "", "", False)


def test_progress(session, capsys):
    pause = session.get_global_func("test.pause")
    for seconds in (0.08, 0.3, 1, 3):  # a busy machine may come to the bar late
        for _ in range(4):
            pause(seconds)
        session.sync_all(progress=True)
        shown = capsys.readouterr().err
        if "slowest: worker" in shown and "test.pause" in shown:
            break
    assert "slowest: worker" in shown and "test.pause" in shown and "100%" in shown, shown
    issued, finished, workers = session._progress()
    assert finished == issued and [w[0] for w in workers] == list(range(WORKERS)) and {w[4] for w in workers} == {""}
    session.get_global_func("test.fail")(0)
    with pytest.raises(RuntimeError, match="worker 0 fails"):
        session.sync_all(progress=True)
    pause(0.3)
    with pytest.raises(tutti.TimeoutError):
        session.sync_all(timeout=0.1, progress=True)
    session.sync_all()
