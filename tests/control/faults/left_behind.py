"""What a program that has ended, or was killed, may leave behind. Its processes are known by a mark in their environment."""
import os
import signal
import time


def orphans(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def sweep(pids):
    for pid in pids:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass


def shared_memory():
    """All that has a name, but what Open MPI leaves itself when it is killed."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("vader_segment.")}


def what_is_left(mark, names_before, until):
    """None, or what there is still at that time; the processes are swept."""
    while (left := orphans(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    if left:
        sweep(left)
        return f"leaves processes behind: {left}"
    names = shared_memory() - names_before
    return f"leaves shared memory behind: {names}" if names else None
