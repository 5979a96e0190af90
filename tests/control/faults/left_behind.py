"""What a program that has ended, or was killed, may leave behind. Its processes are known by a mark in their environment."""
import os
import signal


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


def nameless_shared_memory():
    """MiB of shared memory that no file in /dev/shm accounts for: a memfd's stays as long as somebody holds it."""
    with open("/proc/meminfo") as file:
        shared = next(int(line.split()[1]) for line in file if line.startswith("Shmem:")) / 1024
    named = 0
    for name in os.listdir("/dev/shm"):
        try:
            named += os.stat(f"/dev/shm/{name}").st_blocks * 512 / 2**20
        except FileNotFoundError:
            pass
    return shared - named
