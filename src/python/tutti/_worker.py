"""The workers of a ProcessSession: processes that a controller starts by command_line()."""

import os
import signal
import subprocess
import sys
import threading


def command_line():
    """How to start a worker: this interpreter, with its options and its paths."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import tutti._worker as w; w.serve()"
    return [sys.executable or "python3", *subprocess._args_from_interpreter_flags(), "-c", code]


def is_rank():
    """Whether a launcher of MPI has started this process."""
    return any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"))


class _Prefixed:
    """A stream whose lines say which worker wrote them, each written at once."""

    prefix = ""  # of this process; also for threads that a function starts

    def __init__(self, stream, worker):
        stream.reconfigure(line_buffering=True, write_through=False)
        self._stream, self._worker, self._at_start = stream, worker, True
        self._new_lock()
        os.register_at_fork(after_in_child=self._new_lock)

    def _new_lock(self):
        self._lock = threading.RLock()  # a signal handler may print while its thread does

    def write(self, text):
        with self._lock:
            if self._worker.active():
                _Prefixed.prefix = f"[worker {self._worker.id()}] "
            lines = text.replace("\n", "\n" + self.prefix)
            if text.endswith("\n"):
                lines = lines[:len(lines) - len(self.prefix)]
            self._stream.write(self.prefix * (self._at_start and text != "") + lines)
            self._at_start = text.endswith("\n") or (self._at_start and not text)
        return len(text)

    def writelines(self, lines):
        self.write("".join(lines))

    def __getattr__(self, name):
        return getattr(self._stream, name)


def serve():
    from . import _core

    signal.signal(signal.SIGINT, lambda number, frame: None)  # Ctrl-C is for the controller. Not SIG_IGN, which programs that a worker starts inherit
    os.putenv("TUTTI_WORKER_SOCKET", os.environ.pop("TUTTI_WORKER_SOCKET"))  # for _run, which unsets it; os.environ is for the worker's children
    if sys.stdout is not None:
        sys.stdout = _Prefixed(sys.stdout, _core.worker)
    if sys.stderr is not None:
        sys.stderr = _Prefixed(sys.stderr, _core.worker)
    sys.exit(_core._run(sys.argv, lambda: 1))
