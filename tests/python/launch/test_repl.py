"""Interactive Python: prompts on a real terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from test_launch import ENVIRONMENT

TUTTI = os.environ["TUTTI"]


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, ENVIRONMENT | {"TERM": "dumb"})
        self.said = ""

    def expect(self, pattern, seconds=30):
        """What comes up to the pattern."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.said)):
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} within {seconds} s in:\n{self.said}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.said += os.read(self.fd, 65536).decode()
                except OSError:
                    raise AssertionError(f"the end, no {pattern!r} in:\n{self.said}") from None
        before, self.said = self.said[:found.end()], self.said[found.end():]
        return before

    def say(self, line):
        os.write(self.fd, line.encode() + b"\n")

    def end(self, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self.fd, 65536).decode()
                except OSError:
                    pass
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"does not end; it said:\n{self.said}")


def talk(terminal, session):
    """The same on every prompt: results, Ctrl-C in a wait, an error, the session goes on."""
    terminal.expect(">>> ")
    if session:
        terminal.say(session)
        terminal.expect(">>> ")
    terminal.say("session.num_workers + 40")
    terminal.expect(r"\n42\r")
    terminal.say("session.import_python_module('functions'); session.get_global_func('test.pause')(1.5); print('issu' + 'ed')")
    terminal.expect("issued\r")
    terminal.expect(">>> ")
    terminal.say("session.sync_all()")
    time.sleep(0.5)
    os.write(terminal.fd, b"\x03")
    terminal.expect("KeyboardInterrupt", seconds=1)
    terminal.expect(">>> ")
    terminal.say("session.get_global_func('test.fail')(0); session.sync_all()")
    terminal.expect("KeyError: .*worker 0 fails")
    terminal.expect(">>> ")
    terminal.say("session.get_global_func('test.add')(20, 22).debug_get_from_remote(1)")
    terminal.expect(r"\n42\r")
    terminal.expect(">>> ")


def test_alone():
    terminal = Terminal(sys.executable, "-m", "tutti")
    talk(terminal, "session = tutti.ProcessSession(2)")
    terminal.say("exit(3)")
    assert terminal.end() == 3


def test_python_itself():
    terminal = Terminal(sys.executable, "-q")
    terminal.expect(">>> ")
    terminal.say("import tutti")
    talk(terminal, "session = tutti.ProcessSession(2)")
    os.write(terminal.fd, b"\x04")  # Ctrl-D
    assert terminal.end() == 0


def test_ranks():
    terminal = Terminal(TUTTI, "repl", "-n", "2", "--python", sys.executable)
    terminal.expect(r"session: Session\(mpi, 2 workers, 1 group")
    talk(terminal, None)
    terminal.say("import os; os.isatty(0), os.isatty(1), os.isatty(2)")
    terminal.expect(r"\(True, True, True\)")
    terminal.say("session.get_glo\t")
    terminal.expect("session.get_global_func")
    terminal.expect(r"\.\.\. ")
    for _ in range(10):  # CPython keeps a Ctrl-C for the next key that comes before it waits for one
        os.write(terminal.fd, b"\x03")
        try:
            terminal.expect(">>> ", seconds=3)
            break
        except AssertionError:
            continue
    else:
        raise AssertionError(f"no prompt after Ctrl-C:\n{terminal.said}")
    os.write(terminal.fd, b"\x04")
    assert terminal.end() == 0, terminal.said


def test_the_code_of_ranks():
    terminal = Terminal(TUTTI, "repl", "-n", "1", "--python", sys.executable)
    terminal.expect(">>> ")
    terminal.say("raise SystemExit(5)")
    assert terminal.end() == 5


@pytest.mark.parametrize("command, said", [
    ([TUTTI, "repl", "-n", "2"], "standard input is no terminal"),
    ([sys.executable, "-m", "tutti"], "usage: mpirun"),
    (["mpirun", "-n", "2", sys.executable, "-m", "tutti"], "usage: mpirun"),
])
def test_without_a_terminal(command, said):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
    assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr


def test_a_terminal_that_rank_0_can_not_have():
    done = subprocess.run(["mpirun", "-n", "2", sys.executable, "-m", "tutti"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env=ENVIRONMENT | {"TUTTI_TTY": "/dev/pts/nowhere"})
    assert done.returncode == 1 and "rank 0 can't use the terminal /dev/pts/nowhere (No such file" in done.stderr
