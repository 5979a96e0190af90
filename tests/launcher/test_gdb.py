"""tutti run --gdb, on a pseudo-terminal and without one. SPMD: spmd.cpp."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

TUTTI, SPMD = os.environ["TUTTI"], os.environ["SPMD"]
pytestmark = pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb here")


class Terminal:
    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, os.environ | {"TERM": "dumb", "NO_COLOR": "1"})
        self.said = ""

    def expect(self, pattern, seconds=30):
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.said)):
            assert time.monotonic() < until, f"no {pattern!r} in:\n{self.said}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self.fd, 65536).decode()
                except OSError:
                    raise AssertionError(f"the end, no {pattern!r} in:\n{self.said}") from None
        self.said = self.said[found.end():]

    def say(self, line):
        os.write(self.fd, line.encode() + b"\n")


def test_on_a_terminal():
    terminal = Terminal(TUTTI, "run", "-n", "2", "--gdb", "1", "--", SPMD, "--gtest_color=no")
    terminal.expect(r"\(gdb\) ")
    terminal.say("set pagination off")
    terminal.say("set breakpoint pending on")
    terminal.say("break MPI_Finalize")
    terminal.say("run")
    terminal.expect(r"\[0\] \[ RUN      \] Spmd.Sum(.|\n)*hit Breakpoint 1|hit Breakpoint 1(.|\n)*\[0\] \[ RUN      \] Spmd.Sum")  # the other rank's lines come as ever
    terminal.say("print 40 + 2")
    terminal.expect(r"\$1 = 42\r")
    terminal.say("continue")
    terminal.expect("exited normally")
    terminal.expect(r"\(gdb\) ")
    terminal.say("quit")
    while True:  # until all have closed it
        try:
            if not os.read(terminal.fd, 65536):
                break
        except OSError:
            break
    assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 0


def test_without_a_terminal():
    done = subprocess.run([TUTTI, "run", "-n", "2", "--gdb", "1", "--", SPMD], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=os.environ | {"BREAK": "segv"})
    assert done.returncode == 139
    assert re.search(r"^\[1\] .*received signal SIGSEGV", done.stdout, re.M) and re.search(r"^\[1\] #\d+ .*Spmd_Sum_Test::TestBody", done.stdout, re.M), done.stdout


def test_its_exit_code():
    for command, code in (([SPMD], 0), (["sh", "-c", "exit 3"], 3)):
        assert subprocess.run([TUTTI, "run", "-n", "2", "--gdb", "1", "--", *command], capture_output=True, timeout=60, stdin=subprocess.DEVNULL).returncode == code


def test_a_rank_that_is_not_there():
    done = subprocess.run([TUTTI, "run", "-n", "2", "--gdb", "2", "--", SPMD], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "--gdb 2: the ranks are 0 to 1" in done.stderr
