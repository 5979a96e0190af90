import os

import numpy as np
import pytest

import tutti

LIBRARY = os.path.join(os.environ["TUTTI_TEST_MODULES"], "%s.so")


def test_functions_of_a_library(session):
    module = session.load_vm_module(LIBRARY % "rows")
    assert repr(module).startswith("DModule(reg=")
    assert module.functions() == sorted(module.functions()) and "echo" in module.functions()
    assert module._ipython_key_completions_() == module.functions()
    assert session.load_vm_module(LIBRARY % "stateful")._ipython_key_completions_() == []
    assert tutti.DModule(module, session)["echo"](3).debug_get_from_remote(0) == 3
    assert not callable(module)
    echo = module["echo"]
    for value in (1, 2.5, "text", b"bytes", None):
        assert echo(value).debug_get_from_remote(session.num_workers - 1) == value
    x = session.broadcast(np.arange(3, dtype="float32"))
    assert echo(x).debug_get_from_remote(0).numpy().tolist() == [0, 1, 2]
    module["no_such"]
    with pytest.raises(RuntimeError, match="no_such"):
        session.sync_all()
    session.load_vm_module("/nowhere.so")
    with pytest.raises(RuntimeError, match="nowhere"):
        session.sync_all()


def test_a_function_of_a_library_that_throws(session):
    session.load_vm_module(LIBRARY % "throws")["throws"]()
    with pytest.raises(RuntimeError) as caught:
        session.sync_all()
    assert [(f.kind, f.message) for f in caught.value.failures] == [("Own", "thrown through C")] * session.num_workers
