"""python3 -m tutti on a terminal, and tutti repl: a prompt with a session."""

import code
import os
import signal
import sys

from ._worker import is_rank


def is_possible():
    """Above rank 0 there is nobody to talk to, but sessions to serve."""
    return "TUTTI_TTY" in os.environ if is_rank() else sys.stdin is not None and sys.stdin.isatty()


def _take_terminal(name):
    """The terminal of tutti repl: its lines come to us, and its Ctrl-C."""
    try:
        terminal = os.open(name, os.O_RDWR)
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(terminal, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)
    except OSError as error:
        sys.exit(f"tutti repl: rank 0 can't use the terminal {name} ({error.strerror}); it must run on the host, and in the login, of tutti repl")
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # a stopped controller would look like a lost one
    for descriptor in (0, 1, 2):
        os.dup2(terminal, descriptor)
    os.close(terminal)
    sys.stdout.reconfigure(line_buffering=True)


def run():
    import tutti

    names = {"__name__": "__main__", "tutti": tutti}
    if is_rank():
        _take_terminal(os.environ["TUTTI_TTY"])
        names["session"] = tutti.Session()
        about = "session: " + repr(names["session"])
    else:
        about = "session = tutti.ProcessSession(4) makes a session; tutti repl -n 4 starts with one on ranks of mpirun"
    try:
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    except ImportError:
        pass
    sys.path.insert(0, "")
    code.interact(f"tutti {tutti.__version__} on Python {sys.version.split()[0]}\n{about}", local=names, exitmsg="")
