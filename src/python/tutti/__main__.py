"""python3 -m tutti script.py [arguments]: the script on rank 0, the other ranks serve its sessions.

usage: mpirun -n 4 python3 -m tutti script.py [arguments]
       mpirun -n 4 python3 -m tutti -m module [arguments]
       mpirun -n 4 python3 -m tutti -c 'commands' [arguments]
       ... -m tutti --tvm script.py        (or -m, -c) the same: tvm.runtime.disco is tutti's (see tutti.tvm)
       python3 -m tutti                    on a terminal: interactive
       tutti repl -n 4                     the same, with a session on ranks of mpirun
"""

import os
import runpy
import sys
import traceback
import types

from . import _repl
from ._errors import Preempted, TimeoutError


def _run_script(arguments):
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def _say(text):
    """On stderr, if that can be written: closed, it is None, which print() takes for stdout."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
    except OSError:
        pass


def _code_of(stop):
    """What sys.exit(...) means, as the interpreter has it."""
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    _say(f"{stop.code}\n")
    return 1


def _is_users(frame):
    return frame.filename not in (__file__, runpy.__file__) and not frame.filename.startswith("<frozen runpy")


def _print_traceback(error):
    """As if python3 script.py had raised it: without the frames that ran the script."""
    if sys.excepthook is not sys.__excepthook__:
        return sys.excepthook(type(error), error, error.__traceback__)
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list([frame for frame in shown.stack if _is_users(frame)])
    _say("".join(shown.format()))


def _controller(run):
    from . import _core

    code = 0
    try:
        run()
    except SystemExit as stop:
        code = _code_of(stop)
    except KeyboardInterrupt as error:
        _print_traceback(error)
        code = 130
    except BaseException as error:
        _print_traceback(error)
        code = 75 if isinstance(error, Preempted) else 124 if isinstance(error, TimeoutError) else 1
    all_is_well = _core._end()
    sys.stdout.flush()
    return code or (0 if all_is_well else 1)


def main():
    arguments = sys.argv[1:]
    if not arguments and _repl.is_possible():
        from . import _core

        return _core._run(sys.argv, lambda: _controller(_repl.run))
    for_tvm = arguments[:1] == ["--tvm"]
    arguments = arguments[for_tvm:]
    is_unknown = arguments and arguments[0].startswith("-") and arguments[0] not in ("-c", "-m") and not os.path.exists(arguments[0])
    if not arguments or is_unknown or (arguments[0] in ("-c", "-m") and len(arguments) < 2):
        print(__doc__.strip(), file=sys.stdout if arguments and arguments[0] in ("-h", "--help") else sys.stderr)
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    from . import _core

    if not sys.flags.safe_path and arguments[0] not in ("-c", "-m"):
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))  # on every rank
    sys.stdout.reconfigure(line_buffering=True)
    if for_tvm:  # on every rank
        try:
            from . import tvm  # noqa: F401
        except ImportError as error:
            _say(f"{error}\n")
            return 1
    return _core._run(sys.argv, lambda: _controller(lambda: _run_script(arguments)))


sys.exit(main())
