"""The workers of a ProcessSession: processes that a controller starts by command_line()."""

import os
import signal
import subprocess
import sys


def command_line():
    """How to start a worker: this interpreter, with its options and its paths."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import tutti._worker as w; w.serve()"
    return [sys.executable or "python3", *subprocess._args_from_interpreter_flags(), "-c", code]


def is_rank():
    """Whether a launcher of MPI has started this process."""
    return any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"))


def serve():
    from . import _core

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the controller, and reaches the whole group
    for stream in (sys.stdout, sys.stderr):  # the process ends when its controller does, without a last flush
        if stream is not None:
            stream.reconfigure(line_buffering=True)
    sys.exit(_core._run(sys.argv, lambda: 1))
