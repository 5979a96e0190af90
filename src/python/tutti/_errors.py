"""What tutti raises."""

import builtins
import os
import sys
import traceback
from typing import NamedTuple


_HERE = os.path.dirname(__file__)


class Error(Exception):
    """Base of everything tutti raises. The message says rank and host where known, what was expected, what came, what to do."""


class UsageError(Error, ValueError):
    """The caller broke a contract: checked before anything is sent. Nothing has changed."""


class WorkerIndexError(UsageError, IndexError):
    """There is no such worker."""


class TimeoutError(Error, builtins.TimeoutError):
    """A limit that the caller gave has passed. The operation goes on: calling again waits again."""


class Preempted(Error):
    """The job is to make room, and the session has been shut down for it."""


class TransportError(Error, ConnectionError):
    """A peer or MPI was lost: the session is over."""


class SystemError(Error, OSError):
    """The operating system refused something."""


class ModuleError(Error, RuntimeError):
    """A function of a module failed in this process."""


class WorkerFailure(NamedTuple):
    """One failure on one worker."""

    worker: int
    seq: int  #: the command that failed
    host: str
    pid: int
    kind: str  #: type of what was thrown, such as 'ValueError'
    message: str
    function: str  #: that ran
    issued_at: str  #: file:line of the controller's call
    traceback: str  #: of the worker


class RemoteError(Error, RuntimeError):
    """Worker functions failed: raised once, by a call that waits. In a worker function: another member of a collective failed."""

    failures: list = []  #: of WorkerFailure
    workers: list = []  #: ids, sorted, each once


def _notes_of(exception):
    """As Python prints them: they may be anything."""
    notes = getattr(exception, "__notes__", [])
    for note in notes if isinstance(notes, (list, tuple)) else [notes]:
        try:
            yield str(note)
        except Exception:
            yield f"<note: str() of {type(note).__name__} failed>"


def traceback_of(exception):
    """The lines of a worker's traceback, without the exception itself (but for those of a group), and its notes."""
    frames = traceback.extract_tb(exception.__traceback__)
    while len(frames) > 1 and (os.path.dirname(frames[0].filename) == _HERE or "importlib" in frames[0].filename):
        del frames[0]  # of an import that we were asked for
    text = "".join(traceback.format_list(frames))
    cause = exception.__cause__ or (None if exception.__suppress_context__ else exception.__context__)
    if cause is not None:
        text = "".join(traceback.format_exception(cause)) + "which led to\n" + text
    if isinstance(exception, BaseExceptionGroup):  # with its notes
        return "".join(traceback.format_exception(exception, chain=False)).rstrip("\n")
    return "\n".join([text.rstrip("\n"), *_notes_of(exception)])


def check_interpreter():
    """The extension would freeze in a subinterpreter."""
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters  # until Python 3.12
    if interpreters.get_current() != interpreters.get_main():
        raise ImportError("tutti works in the main interpreter of a process only, and this is a subinterpreter")


def why_no_extension(folder, error):
    built = [name for name in os.listdir(folder) if name.startswith("_core.") and name.endswith(".so")]
    this = f"this is {sys.executable} ({sys.implementation.cache_tag})"
    if not built:
        return f"tutti's extension is not in {folder}: build it, and set PYTHONPATH=build/src/python, or meson install ({error})"
    if not any(sys.implementation.cache_tag.split("-")[-1] in name for name in built):
        return f"tutti was built for another Python ({', '.join(built)}), {this}; Debian's is /usr/bin/python3, others by meson's python_program"
    return f"tutti's extension can't be loaded, {this}: {error}"


for _public in [Error, *Error.__subclasses__(), WorkerIndexError, WorkerFailure]:
    _public.__module__ = "tutti"  # as users know them
