"""tutti: one controller program drives every rank of an MPI job.

    mpirun -n 4 python3 -m tutti script.py

with a script such as

    import numpy as np
    import tutti

    with tutti.Session() as session:               # all ranks; or tutti.ThreadedSession(4), tutti.ProcessSession(4)
        x = session.broadcast(np.ones(3, "float32"))
        session.allreduce(x, x)
        print(x.debug_get_from_remote(0).numpy())   # [4. 4. 4.]

tutti.disco has the names of TVM Disco's session API.
"""

import atexit as _atexit
import threading as _threading  # noqa: F401  takes the thread that imports it first for the main one: not a worker's

from . import _errors

_errors.check_interpreter()
try:
    from . import _core
except ImportError as _error:
    raise ImportError(_errors.why_no_extension(__path__[0], _error)) from _error

from ._core import (
    Comm,
    Device,
    DModule,
    DPackedFunc,
    DRef,
    Opaque,
    PackedFunc,
    ProcessSession,
    Program,
    Session,
    SocketSession,
    Tensor,
    ThreadedSession,
    cpu,
    cuda,
    empty,
    from_dlpack,
    get_global_func,
    tensor,
)
from ._core import __version__, _end, _register_global_func
from ._errors import (
    Error,
    ModuleError,
    Preempted,
    RemoteError,
    SystemError,
    TimeoutError,
    TransportError,
    UsageError,
    WorkerFailure,
)
from ._types import DataType, Shape
from . import _remote, _show, disco, distributed, worker

Session.define = _remote.define
Session.distribute = distributed._session_distribute
Session.shard_map = distributed._session_shard_map
Session.save = distributed._session_save
Session.save_async = distributed._session_save_async
Session.load = distributed._session_load
Session.show = _show.show
Session.places = _show.places

_atexit.register(_end)  # while workers can still use the interpreter


def register_global_func(name, f=None, override=False):
    """Makes `f` known in this process under `name`; without `f` a decorator, without a name the function's own.

    Sessions call it on the workers whose processes have run this: those of a ThreadedSession, or, when it stands in a module that
    `session.import_python_module` names, all.

    >>> @tutti.register_global_func("app.add", override=True)  # worker 0 has it twice, if the script imports itself as a module
    ... def add(a, b):
    ...     return a + b

    Raises UsageError (a ValueError) if the name is taken, unless `override`.
    """
    if callable(name):  # @register_global_func without parentheses
        name, f = name.__name__, name
    if f is not None:
        _register_global_func(name, f, override)
        return f

    def register(function):
        _register_global_func(name, function, override)
        return function

    return register


__all__ = [name for name in dir() if not name.startswith("_")]
