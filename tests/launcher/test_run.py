"""tutti run, from the outside."""

import glob
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

TUTTI = os.environ["TUTTI"]
EXAMPLES = os.path.join(os.path.dirname(TUTTI), "..", "examples")


def run(*arguments, code=0, timeout=60):
    done = subprocess.run([TUTTI, "run", *arguments], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def start(*arguments):
    return subprocess.Popen([TUTTI, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def processes(pattern):
    """Ids of those whose command line matches; without pgrep, which a bare Debian lacks."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if words and int(folder.name) != os.getpid() and re.search(pattern, words):
            found.append(int(folder.name))
    return found


def is_running(pattern):
    return bool(processes(pattern))


def wait_until(what, limit=10):
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.05)
    return False


def test_lines_are_whole_and_have_their_rank():
    text = "for i in $(seq 200); do printf 'begin of rank '; printf \"$OMPI_COMM_WORLD_RANK \"; echo $i; done; echo complaint >&2"
    done = run("-n", "3", "--", "bash", "-c", text)
    assert sorted(done.stdout.splitlines()) == sorted(f"[{r}] begin of rank {r} {i}" for r in range(3) for i in range(1, 201))
    assert sorted(line for line in done.stderr.splitlines() if "complaint" in line) == [f"[{r}] complaint" for r in range(3)]


def test_raw_output_and_logs(tmp_path):
    assert run("-n", "2", "--raw", "--", "echo", "plain").stdout == "plain\nplain\n"
    run("-n", "2", "--log-dir", str(tmp_path / "logs"), "--", "bash", "-c", "echo out $OMPI_COMM_WORLD_RANK; echo err >&2")
    assert {p.name: p.read_text() for p in (tmp_path / "logs").iterdir()} == {
        "rank-0.out": "out 0\n", "rank-1.out": "out 1\n", "rank-0.err": "err\n", "rank-1.err": "err\n"}


PROGRAM = r"""
#include <mpi.h>
#include <cstdlib>
#include <cstring>
#include <csignal>
#include <unistd.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc > 1 && rank == 1) {
    if (!std::strcmp(argv[1], "exit")) std::exit(3);
    if (!std::strcmp(argv[1], "leave")) std::exit(0);
    if (!std::strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
    if (!std::strcmp(argv[1], "kill")) kill(getpid(), SIGKILL);
    if (!std::strcmp(argv[1], "segv")) kill(getpid(), SIGSEGV);
    if (!std::strcmp(argv[1], "hang")) pause();
  }
  if (argc > 1 && std::strcmp(argv[1], "return")) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return argc > 1 ? 3 : 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "p.cpp").write_text(PROGRAM)
    subprocess.run(["mpicxx", "-DOMPI_SKIP_MPICXX", "-o", folder / "p", folder / "p.cpp"], check=True)
    return str(folder / "p")


def unmapped_segments():
    """Of Open MPI; other tests may run."""
    mapped = ""
    for maps in glob.glob("/proc/[0-9]*/maps"):
        try:
            mapped += pathlib.Path(maps).read_text()
        except OSError:
            pass
    return {file for file in glob.glob("/dev/shm/vader_segment.*") if file not in mapped}


@pytest.mark.parametrize("how, code", [("return", 3), ("exit", 3), ("leave", 1), ("abort", 7), ("kill", 137), ("segv", 139)])
def test_exit_codes(program, how, code):
    before = unmapped_segments()
    run("-n", "2", "--", program, how, code=code)
    assert not unmapped_segments() - before and not is_running(program)


def test_a_killed_mpirun_leaves_nothing(program):
    before = unmapped_segments()
    job = start("-n", "2", "--", program, "hang")
    assert wait_until(lambda: is_running(f"^{program} hang"))
    time.sleep(0.5)  # they are in MPI
    [mpirun] = [pid for pid in processes(f"^mpirun .*{program} hang") if f"\nPPid:\t{job.pid}\n" in pathlib.Path(f"/proc/{pid}/status").read_text()]
    os.kill(mpirun, signal.SIGKILL)
    job.communicate(timeout=20)
    assert job.returncode == 137 and not is_running(f"^{program}") and not unmapped_segments() - before


def test_a_healthy_program(program):
    assert run("-n", "2", "--", program).stderr == ""


def test_a_time_limit_says_what_the_ranks_do(program):
    done = run("-n", "2", "--timeout", "1", "--", program, "hang", code=124)
    assert "has run 1 s, its limit" in done.stderr and not is_running(program)


def test_before_the_limit_ends_it_tutti_s_program_says_what_it_does(tmp_path):
    script = tmp_path / "stuck.py"
    script.write_text("import tutti\ns = tutti.Session()\n@s.define\ndef stuck():\n    import time\n    time.sleep(1000)\nstuck()\ns.sync_all()\n")
    folder = os.path.join(os.path.dirname(TUTTI), "..", "src", "python")
    if not glob.glob(os.path.join(folder, "tutti", "_core*.so")):
        pytest.skip("built without Python")
    done = run("-n", "2", "--timeout", "4", "-L", "-x", "-L", f"PYTHONPATH={folder}", "--", sys.executable, "-m", "tutti", str(script), code=124)
    assert done.stderr.count("stuck") >= 2 and "worker 1" in done.stderr, done.stderr


def test_a_reader_that_stands_still_stops_neither_signals_nor_the_limit():
    """A pager on its first page."""
    job = start("-n", "1", "--timeout", "2", "--", "bash", "-c", "while true; do echo a line that nobody reads; done")
    bash = "^bash -c while true; do echo a line"
    assert wait_until(lambda: is_running(bash)) and wait_until(lambda: not is_running(bash), 20), "the limit has ended it"
    assert job.wait(timeout=15) == 124  # what is not written is given up
    job = start("-n", "1", "--", "seq", "-f", "a line that is longer than its tag %.0f", "200000")  # shorter ones mpirun loses: docs/cluster.md
    time.sleep(1)
    out, _ = job.communicate(timeout=60)
    assert out.splitlines() == [f"[0] a line that is longer than its tag {i}" for i in range(1, 200001)], "nothing is lost when the reader goes on"


def test_ignored_signals_stay_ignored(tmp_path):
    job = subprocess.Popen(["bash", "-c", f"trap '' HUP; exec {TUTTI} run -n 1 -- bash -c 'echo ready; sleep 2; echo end'"], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    assert job.stdout.readline() == "[0] ready\n"
    job.send_signal(signal.SIGHUP)
    assert job.communicate(timeout=20)[0] == "[0] end\n" and job.returncode == 0
    assert subprocess.run(["bash", "-c", f"trap '' CHLD; exec {TUTTI} run -n 1 -- true"], stdin=subprocess.DEVNULL, timeout=20).returncode == 0


def test_programs_that_can_t_be_started():
    assert "/nowhere" in run("-n", "1", "--", "/nowhere", code=run_code("/nowhere")).stderr
    assert "PROGRAM" in run("-n", "1", code=106).stderr
    assert "srun" in run("-n", "1", "--launcher", "srun", "--", "true", code=1).stderr


def run_code(program):
    """mpirun's own, for what it can't execute."""
    return subprocess.run(["mpirun", "-n", "1", program], capture_output=True, env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}).returncode


def test_restarts(tmp_path):
    text = f"echo $TUTTI_RESTART_COUNT >> {tmp_path}/tries; [ $TUTTI_RESTART_COUNT = 2 ] || exit 4"
    assert "restart 2 of 5" in run("-n", "1", "--max-restarts", "5", "--", "bash", "-c", text).stderr
    assert (tmp_path / "tries").read_text() == "0\n1\n2\n"
    run("-n", "1", "--max-restarts", "1", "--", "bash", "-c", "exit 4", code=4)
    for final in (75, 99):
        assert "restart" not in run("-n", "1", "--max-restarts", "3", "--", "bash", "-c", f"exit {final}", code=final).stderr


def test_dry_run():
    command = run("-n", "2", "--dry-run", "--", "echo", "a b").stdout
    assert "mpirun -n 2" in command and "'a b'" in command
    assert subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout.count("a b\n") == 2


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
def test_signals_reach_the_ranks(number):
    name = number.name[3:]
    job = start("-n", "2", "--", "bash", "-c", f"trap 'echo got; exit 0' {name}; echo ready; while true; do sleep 0.05; done")
    ready = [job.stdout.readline() for _ in range(2)]
    assert sorted(ready) == ["[0] ready\n", "[1] ready\n"]
    job.send_signal(number)
    out, err = job.communicate(timeout=20)
    assert out.count("got") == 2, err


def test_ctrl_c_ends_the_job_and_twice_kills_it():
    mark = f"sleep {5000 + os.getpid()}"
    job = start("-n", "2", "--", *mark.split())
    assert wait_until(lambda: is_running(f"^{mark}"))
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=20)
    assert job.returncode == 130 and "once more kills it" in err and not is_running(f"^{mark}")
    job = start("-n", "2", "--", "bash", "-c", f"trap '' TERM INT; {mark}; true")
    assert wait_until(lambda: is_running(f"^{mark}"))
    job.send_signal(signal.SIGINT)
    time.sleep(0.2)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=20)
    assert job.returncode == 130 and wait_until(lambda: not is_running(mark), 3)


def test_nothing_is_left_when_tutti_run_is_killed():
    mark = f"sleep {6000 + os.getpid()}"
    job = start("-n", "2", "--", *mark.split())
    assert wait_until(lambda: is_running(f"^{mark}"))
    job.kill()
    job.communicate(timeout=20)
    assert wait_until(lambda: not is_running(f"^{mark}"), 10)


def test_tutti_s_programs():
    done = run("-n", "3", "--bind", "cores", "--", str(pathlib.Path(EXAMPLES) / "hello"))
    assert done.stdout.count("hello from worker") == 3 and done.stderr == ""
