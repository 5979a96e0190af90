import os
import re

import numpy as np
import pytest
from conftest import KIND, WORKERS

import tutti


def here():
    import inspect

    return f"{__file__}:{inspect.currentframe().f_back.f_lineno}"


def test_a_worker_function_raises(session):
    fail = session.get_global_func("test.fail")
    fail(WORKERS - 1); line = here()  # noqa: E702  one line
    with pytest.raises(RuntimeError) as caught:
        session.sync_all()
    error = caught.value
    assert isinstance(error, tutti.RemoteError) and error.workers == [WORKERS - 1] and len(error.failures) == 1
    failure = error.failures[0]
    assert failure.kind == "KeyError" and failure.message == f"'worker {WORKERS - 1} fails'" and failure.function == "test.fail"
    assert failure.issued_at == line and "functions.py" in failure.traceback and "raise KeyError" in failure.traceback
    assert failure.issued_at in str(error) and "KeyError" in str(error)
    session.sync_all()  # once
    assert session.get_global_func("test.add")(1, 1).debug_get_from_remote(WORKERS - 1) == 2


def test_all_fail_alike(session):
    session.get_global_func("test.fail")(-1)
    with pytest.raises(tutti.RemoteError) as caught:
        session.sync_all()
    assert caught.value.workers == list(range(WORKERS))


def test_lost_registers_raise_again(session):
    lost = session.get_global_func("test.fail")(0)
    with pytest.raises(tutti.RemoteError, match="KeyError"):
        session.sync_all()
    with pytest.raises(tutti.RemoteError, match="KeyError"):
        lost.debug_get_from_remote(0)


@pytest.mark.parametrize("code", [0, 3])
def test_sys_exit_is_an_error_like_any(session, code):
    session.get_global_func("test.leave")(code)
    with pytest.raises(tutti.RemoteError, match="SystemExit"):
        session.sync_all()
    session.sync_all()


def test_one_fails_before_a_collective(session):
    x = session.broadcast(np.ones(4, "float32"))
    session.get_global_func("test.fail_before_allreduce")(x, 0)
    with pytest.raises(tutti.RemoteError) as caught:
        session.sync_all()
    assert caught.value.workers == [0]  # the others' failures are its consequences
    assert "not me" in str(caught.value)


def test_an_error_of_tutti_can_be_caught(session):
    x = session.broadcast(np.ones(4, "float32"))
    got = session.get_global_func("test.catch_and_go_on")(x)
    assert [got.debug_get_from_remote(w) for w in range(WORKERS)] == ["caught"] * WORKERS


def test_missing_functions_and_modules(session):
    for name in ("no.such.function", "test.ad"):  # without and with near names
        session.get_global_func(name)
        with pytest.raises(tutti.RemoteError, match=f"no function '{name}'.*session.define.*import_python_module.*register_global_func"):
            session.sync_all()
    session.import_python_module("no_such_module")
    with pytest.raises(tutti.RemoteError, match="ModuleNotFoundError"):
        session.sync_all()


def test_what_a_broken_module_says(session, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "makes_a_session.py").write_text("import tutti\ntutti.ThreadedSession(1)\n")
    session.import_python_module("makes_a_session")
    with pytest.raises(tutti.RemoteError, match="__main__") as caught:
        session.sync_all()
    assert caught.value.failures[0].traceback.startswith('  File "' + str(tmp_path)), "frames of importlib and tutti are shown"


def test_notes_groups_and_odd_messages(session):
    @session.define
    def fail(how):
        if how == "note":
            error = ValueError("a")
            error.add_note("look here")
            raise error
        if how == "odd notes":
            class Odd:
                def __str__(self):
                    raise RuntimeError("no text")

            error = ValueError("kept")
            error.__notes__ = [3, Odd(), "look here"]
            raise error
        if how == "one note":
            error = ValueError("kept")
            error.__notes__ = 7
            raise error
        if how == "nul":
            raise ValueError("before\0after")
        if how == "group":
            raise ExceptionGroup("both", [ValueError("first"), TypeError("second")])
        raise ValueError("a surrogate \ud800")

    for how, said in (("note", "look here"), ("odd notes", "kept(.|\n)*\n3\n<note: str.. of Odd failed>\nlook here"), ("one note", "kept(.|\n)*\n7"),
                      ("nul", r"before\\0after"), ("group", "TypeError: second"), ("text", "a surrogate .ud800")):
        fail(how)
        with pytest.raises(tutti.RemoteError, match=said) as caught:
            session.sync_all()
        assert caught.value.workers == list(range(WORKERS)) and "in fail" in caught.value.failures[0].traceback


def test_worker_functions_make_no_sessions(session):
    session.get_global_func("test.use_a_session")()
    with pytest.raises(tutti.RemoteError, match="worker function can't"):
        session.sync_all()


def test_odd_objects(session, recwarn):
    made = session.get_global_func("test.make_odd")()
    session.sync_all()
    del made
    session.get_global_func("test.fail_silently")()
    with pytest.raises(tutti.RemoteError, match="SilentError") as caught:
        session.sync_all()
    assert "in fail_silently" in caught.value.failures[0].traceback


def test_wrong_arguments_of_a_function(session):
    session.get_global_func("test.add")(1)
    with pytest.raises(tutti.RemoteError, match="TypeError.*add"):
        session.sync_all()


def test_time_limit(session):
    session.get_global_func("test.pause")(1.0)
    with pytest.raises(TimeoutError) as caught:
        session.sync_all(timeout=0.1)
    said = str(caught.value)
    assert said.count("computes test.pause") == len(re.findall(r"at \S*/functions\.py:\d+ in pause;", said)) == WORKERS, said
    session.sync_all()  # waits again
    assert session.get_global_func("test.add")(1, 1).debug_get_from_remote(0) == 2


def test_with_lets_the_first_error_out():
    from conftest import make_session

    with pytest.raises(ZeroDivisionError):
        with make_session() as s:
            s.import_python_module("functions")
            s.get_global_func("test.fail")(0)
            1 / 0


def test_nothing_on_stderr(session, capfd):
    session.get_global_func("test.fail")(0)
    with pytest.raises(tutti.RemoteError):
        session.sync_all()
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(KIND != "process" or WORKERS < 2, reason="only a ProcessSession outlives a lost worker")
def test_a_killed_worker():
    from conftest import make_session

    s = make_session()
    s.import_python_module("functions")
    os.kill(s.get_global_func("test.pid")().debug_get_from_remote(WORKERS - 1), 9)
    with pytest.raises(tutti.TransportError, match="signal 9"):
        for _ in range(100):
            s.get_global_func("test.add")(1, 2)
            s.sync_all(timeout=5)
    with pytest.raises(tutti.TransportError, match="signal 9"):
        s.shutdown()
    with make_session() as again:
        again.import_python_module("functions")
        assert again.get_global_func("test.add")(2, 2).debug_get_from_remote(WORKERS - 1) == 4
