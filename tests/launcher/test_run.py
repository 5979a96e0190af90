"""tutti run, from the outside."""

import glob
import os
import pathlib
import pty
import re
import shutil
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


def test_floods_of_short_lines():
    """mpirun's own tags lose a third of these."""
    lines = run("-n", "2", "--", "seq", "100000").stdout.splitlines()
    for rank in (0, 1):
        assert [line for line in lines if line.startswith(f"[{rank}] ")] == [f"[{rank}] {i}" for i in range(1, 100001)]


def test_any_bytes_come_out_as_they_are(tmp_path):
    """Text like mpirun's tags and tutti's own frames, and every byte."""
    lines = [b"\x1e00000001" + b"1003ab".ljust(503), b"before [1,1]<stdout>:after", b"[1,0]<stderr>:x", b"[prterun-host-77@1,0]<stdout>: x", b"0: x", b"\x1e", b"\x1e  ", b"\x1eb[\x1em", b"   ", b"", bytes(b for b in range(256) if b != 10)]
    lines += [b"[" * 5000, b"[1,1]<stdout>:" * 2000, b"the end"]
    (tmp_path / "text").write_bytes(b"\n".join(lines))
    done = subprocess.run([TUTTI, "run", "-n", "2", "--log-dir", tmp_path / "logs", "--", "sh", "-c", f"cat {tmp_path}/text; cat {tmp_path}/text >&2"], capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    for stream in (done.stdout, done.stderr):
        for rank in (b"[0] ", b"[1] "):
            assert [line[4:] for line in stream.split(b"\n") if line.startswith(rank)] == lines
    for log in ("rank-0.out", "rank-1.out", "rank-0.err", "rank-1.err"):
        assert (tmp_path / "logs" / log).read_bytes() == b"\n".join([*lines, b""])


def test_last_words():
    text = "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then seq 2000; seq 3000 >&2; echo last; exit 3; else sleep 20; fi"
    for _ in range(5):
        done = run("-n", "2", "--", "bash", "-c", text, code=3)
        assert done.stdout.splitlines() == [f"[1] {i}" for i in range(1, 2001)] + ["[1] last"]
        assert [line for line in done.stderr.splitlines() if line.startswith("[1] ")] == [f"[1] {i}" for i in range(1, 3001)]


def test_words_of_the_program_stay_as_they_are():
    words = ["[64,64]", "[x]", "[[x]]", "[", "a b", "", "--", "-n", "{}", "%s", ":", "::"]  # to mpirun ":" begins another program
    for options in ([], ["--bind", "cores"], ["--raw"]):
        out = run("-n", "1", *options, "--", "printf", "<%s>\n", *words).stdout
        assert out.splitlines() == [("" if "--raw" in options else "[0] ") + f"<{word}>" for word in words]


def test_a_closed_standard_output():
    assert subprocess.run(["sh", "-c", f"{TUTTI} run -n 1 -- echo hello >&-"], timeout=30, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def test_output_that_can_t_be_written(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([TUTTI, "run", "-n", "2", "--", "echo", "hello"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (1, "tutti: output is lost: standard output: No space left on device\n")
    (tmp_path / "rank-1.out").mkdir()
    assert "output is lost: " in run("-n", "2", "--log-dir", str(tmp_path), "--", "echo", "hello", code=1).stderr
    assert (tmp_path / "rank-0.out").read_text() == "hello\n"
    os.mkfifo(tmp_path / "rank-0.err")
    done = run("-n", "1", "--log-dir", str(tmp_path), "--", "sh", "-c", "echo hello; echo oh >&2", code=1, timeout=20)
    assert done.stdout == "[0] hello\n" and "output is lost: " in done.stderr and "rank-0.err is a FIFO" in done.stderr


def test_a_line_that_is_begun_when_its_rank_is_killed():
    text = "trap '' TERM USR2; echo step 1; printf 'step 57%%'; sleep 1; printf ' or so'; sleep 100"
    done = run("-n", "2", "--timeout", "3", "--", "bash", "-c", text, code=124)
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] step {words}" for rank in (0, 1) for words in ("1", "57% or so")]


def test_a_child_that_never_stops_writing_is_not_waited_for():
    """Open MPI 5 reads all it can get, and holds in memory what tutti run has not taken yet: tens of MB, for tens of seconds."""
    done = run("-n", "1", "--", "bash", "-c", "yes & sleep 0.5; exit 3", code=3, timeout=150)
    assert done.stdout.startswith("[0] y\n") and not is_running("^yes$")


def test_what_has_no_newline():
    done = run("-n", "1", "--", "sh", "-c", "printf 'the end'; printf 'of words' >&2; kill -9 $$", code=137)
    assert done.stdout == "[0] the end\n" and "[0] of words\n" in done.stderr
    assert run("-n", "1", "--", "python3", "-c", "import sys; print(sys.stdout.isatty(), sys.stderr.isatty())").stdout == "[0] True False\n"  # as under mpirun


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
    (tmp_path / "logs" / "rank-mine.out").write_text("")
    run("-n", "1", "--log-dir", str(tmp_path / "logs"), "--", "echo", "alone")
    assert {p.name: p.read_text() for p in (tmp_path / "logs").iterdir()} == {"rank-0.out": "alone\n", "rank-mine.out": ""}


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
    if (!std::strcmp(argv[1], "c-abort")) std::abort();
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
    """Of Open MPI; other tests may run: their files are listed before the processes are read that map them."""
    files = glob.glob("/dev/shm/vader_segment.*") + glob.glob("/dev/shm/sm_segment.*")
    mapped = ""
    for maps in glob.glob("/proc/[0-9]*/maps"):
        try:
            mapped += pathlib.Path(maps).read_text()
        except OSError:
            pass
    return {file for file in files if file not in mapped and os.path.exists(file)}


def are_swept(before):
    """Segments, but for those of before; other tests' ranks may be dying, and their launchers sweep, too."""
    return wait_until(lambda: not unmapped_segments() - before)


@pytest.mark.parametrize("how, code", [("return", 3), ("exit", 3), ("leave", 1), ("abort", 7), ("kill", 137), ("segv", 139), ("c-abort", 134)])
def test_exit_codes(program, how, code):
    before = unmapped_segments()
    run("-n", "2", "--", program, how, code=code)
    assert are_swept(before) and not is_running(program)


def test_an_mpirun_that_crashes_after_an_abort(program, tmp_path, monkeypatch):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f'#!/bin/bash\n{shutil.which("mpirun")} "$@"; code=$?; [[ "$*" = *abort ]] || exit $code; kill -SEGV $$\n')
    mpirun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for _ in range(30):
        done = subprocess.run([TUTTI, "run", "-n", "2", "--", program, "abort"], capture_output=True, text=True, timeout=60)
        if "ORTE_ERROR_LOG" not in done.stderr:  # mpirun 4.1 now and then loses MPI_Abort's words itself
            break
    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize("aborted", ["srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", ""])
def test_srun_kills_a_rank_before_it_exits_with_its_abort(aborted, tmp_path, monkeypatch):
    """What srun of Slurm 22.05 says then; its first line comes late, or not at all, on a busy machine."""
    words = ["0: MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", "1: with errorcode 7.", aborted]
    words += ["srun: error: n2: task 1: Killed", "srun: launch/slurm: _step_signal: Terminating StepId=10017011.5", "srun: error: n1: task 0: Killed"]
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\n[ $1 != --mpi=list ] || exec echo pmix\ncat >&2 <<'END'\n" + "\n".join(words) + "\nEND\nexit 137\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    run("-n", "2", "--launcher", "srun", "--", "true", code=7)


def test_a_killed_mpirun_leaves_nothing(program, tmp_path, monkeypatch):
    before = unmapped_segments()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    job = start("-n", "2", "--", program, "hang")
    assert wait_until(lambda: is_running(f"^{program} hang"))
    time.sleep(0.5)  # they are in MPI
    [mpirun] = [pid for pid in processes(f"^(mpirun|prterun) .*{program} hang") if f"\nPPid:\t{job.pid}\n" in pathlib.Path(f"/proc/{pid}/status").read_text()]
    os.kill(mpirun, signal.SIGKILL)
    job.communicate(timeout=20)
    assert job.returncode == 137 and not is_running(f"^{program}") and are_swept(before) and not os.listdir(tmp_path)


def test_a_reader_that_goes_leaves_the_job_alone(tmp_path):
    script = f'"{TUTTI}" run -n 2 -- bash -c \'for i in 1 2 3; do echo $i; sleep 0.3; done; touch {tmp_path}/$OMPI_COMM_WORLD_RANK\' | head -n 1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
    assert done.returncode == 0 and {file.name for file in tmp_path.iterdir()} == {"0", "1"}, done.stderr


def test_what_the_shell_had_started_before_lives_on():
    done = subprocess.run(["bash", "-c", f'sleep 30 >/dev/null & echo $!; exec "{TUTTI}" run -n 1 -- false'], stdout=subprocess.PIPE, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    os.kill(int(done.stdout), signal.SIGKILL)  # an error, had it ended


def test_logs_of_more_ranks_than_open_files(tmp_path, monkeypatch):
    (tmp_path / "mpirun").write_text("#!/bin/bash\n[ $1 != --version ] || exit\nuntil [ $2 = rank ]; do shift; done\nfor ((i = 0; i < 100; ++i)); do OMPI_COMM_WORLD_RANK=$i \"$@\"; done\n")
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", f'ulimit -Sn 50; exec "{TUTTI}" run -n 100 --log-dir "{tmp_path}/logs" -- bash -c "ulimit -Sn"'], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    logs = [file.read_text() for file in (tmp_path / "logs").glob("rank-*.out")]
    assert len(logs) == 100 and set(logs) == {"50\n"}  # the ranks' own limit stays


def test_a_program_in_another_folder(tmp_path):
    (tmp_path / "p").write_text("#!/bin/sh\necho here\n")
    (tmp_path / "p").chmod(0o755)
    assert run("-n", "1", "-L", "-wdir", "-L", str(tmp_path), "--", "./p").stdout == "[0] here\n"
    assert "no such program" in run("-n", "1", "--", "./p", code=127).stderr


def test_a_healthy_program(program):
    assert run("-n", "2", "--", program).stderr == ""


def test_a_time_limit_says_what_the_ranks_do(program):
    done = run("-n", "2", "--timeout", "1", "--", program, "hang", code=124)
    assert "has run 1 s, its limit" in done.stderr and not is_running(program)


WAITS_IN_THE_KERNEL = r"""
#include <stdlib.h>
#include <unistd.h>
int main() {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (*rank == '1' && vfork() == 0) execlp("sleep", "sleep", "0", NULL), _exit(0);
  if (*rank == '2' && vfork() == 0) {
    sleep(100);  /* its parent is in state D until then */
    _exit(0);
  }
  pause();
}
"""


def test_ranks_that_wait_in_the_kernel_do_not_hold_up_the_limit(tmp_path):
    (tmp_path / "p.c").write_text(WAITS_IN_THE_KERNEL)
    subprocess.run(["mpicc", "-Wl,--no-as-needed", "-o", tmp_path / "waits_in_the_kernel", tmp_path / "p.c"], check=True)  # with MPI it is the rank, not its child
    begun = time.monotonic()
    done = run("-n", "3", "--timeout", "1", "--", str(tmp_path / "waits_in_the_kernel"), code=124)
    assert time.monotonic() - begun < 30 and not is_running("waits_in_the_kernel")
    assert re.search(r"rank 2 \(pid \d+\): waits in the kernel", done.stderr) and re.search(r"rank 1 \(pid \d+\): pause", done.stderr), done.stderr


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


def test_brackets_without_dashes():
    assert "put -- before the program" in run("-n", "1", "echo", "[a,b]", code=109).stderr


def test_programs_that_can_t_be_started():
    assert "/nowhere: there is no such program" in run("-n", "1", "--", "/nowhere", code=127).stderr
    assert "nowhere: there is no such program" in run("-n", "1", "--", "nowhere", code=127).stderr
    assert "can't be executed" in run("-n", "1", "--", "/etc/passwd", code=126).stderr
    assert "PROGRAM" in run("-n", "1", code=106).stderr
    assert "srun" in run("-n", "1", "--launcher", "srun", "--", "true", code=1).stderr


def test_restarts(tmp_path):
    text = f"echo $TUTTI_RESTART_COUNT >> {tmp_path}/tries; [ $TUTTI_RESTART_COUNT = 2 ] || exit 4"
    assert "restart 2 of 5" in run("-n", "1", "--max-restarts", "5", "--", "bash", "-c", text).stderr
    assert (tmp_path / "tries").read_text() == "0\n1\n2\n"
    run("-n", "1", "--max-restarts", "1", "--", "bash", "-c", "exit 4", code=4)
    text = f"echo try $TUTTI_RESTART_COUNT; [ $TUTTI_RESTART_COUNT = 1 ] || kill -9 $$"
    assert "has ended with 137; restart 1 of 1" in run("-n", "2", "--max-restarts", "1", "--log-dir", str(tmp_path / "logs"), "--", "bash", "-c", text).stderr
    assert (tmp_path / "logs" / "rank-0.out").read_text().endswith("try 1\n") and "try 0" in (tmp_path / "logs" / "rank-0.out").read_text() + (tmp_path / "logs" / "rank-1.out").read_text()
    with open("/dev/full", "w") as full:  # the program has succeeded: it is not run again
        done = subprocess.run([TUTTI, "run", "-n", "1", "--max-restarts", "3", "--", "echo", "hello"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "restart" not in done.stderr
    for final in (75, 99):
        assert "restart" not in run("-n", "1", "--max-restarts", "3", "--", "bash", "-c", f"exit {final}", code=final).stderr


def test_dry_run():
    command = run("-n", "2", "--dry-run", "--", "echo", "a b").stdout
    assert "mpirun -n 2" in command and "'a b'" in command
    assert subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout == "a b\na b\n"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
def test_signals_reach_the_ranks(number, tmp_path):
    all_have_it = f"[ -e {tmp_path}/0 ] && [ -e {tmp_path}/1 ]"  # mpirun kills the others as soon as one has ended after TERM
    text = f"trap ': > {tmp_path}/$OMPI_COMM_WORLD_RANK; until {all_have_it}; do sleep 0.01; done; echo got; exit 0' {number.name[3:]}; echo ready; while true; do sleep 0.05; done"
    job = start("-n", "2", "--", "bash", "-c", text)
    ready = [job.stdout.readline() for _ in range(2)]
    assert sorted(ready) == ["[0] ready\n", "[1] ready\n"]
    job.send_signal(number)
    out, err = job.communicate(timeout=20)
    assert sorted(os.listdir(tmp_path)) == ["0", "1"], err
    assert out.count("got") == 2 or number == signal.SIGTERM, err


def test_ctrl_c_ends_the_job_and_twice_kills_it():
    mark = f"sleep {5000 + os.getpid()}"
    job = start("-n", "2", "--", *mark.split())
    assert wait_until(lambda: is_running(f"^{mark}"))
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=20)
    assert job.returncode == 130 and "once more kills it" in err and not is_running(f"^{mark}")
    job = start("-n", "2", "--", "bash", "-c", f"trap '' TERM INT; {mark}; true")
    assert wait_until(lambda: is_running(f"^{mark}"))
    [mpirun] = [pid for pid in processes("^(mpirun|prterun) -n 2 ") if pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1].split()[1] == str(job.pid)]
    os.kill(mpirun, signal.SIGSTOP)  # it would end the job by the first
    job.send_signal(signal.SIGINT)
    time.sleep(1)
    assert job.poll() is None and is_running(f"^{mark}")
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=20)
    assert job.returncode == 130 and wait_until(lambda: not is_running(mark), 3)


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_exit_code_after_a_signal(number, code):
    was = signal.signal(number, signal.SIG_DFL)  # tutti leaves ignored what was ignored, as HUP is below nohup
    job = start("-n", "1", "--max-restarts", "3", "--", "bash", "-c", "echo ready; exec sleep 1000")
    assert job.stdout.readline() == "[0] ready\n"
    signal.signal(number, was)
    job.send_signal(number)
    _, err = job.communicate(timeout=20)
    assert job.returncode == code and "restart" not in err


def test_colours_on_a_terminal():
    main, terminal = pty.openpty()
    job = subprocess.Popen([TUTTI, "run", "-n", "2", "--", "sh", "-c", "echo $TERM"], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, env={**os.environ, "TERM": "xterm"})
    os.close(terminal)
    text = ""
    try:
        while part := os.read(main, 4096):
            text += part.decode()
    except OSError:  # closed
        pass
    os.close(main)
    assert job.wait(timeout=20) == 0 and sorted(text.split("\r\n")) == ["", "\033[33m[1]\033[0m xterm", "\033[36m[0]\033[0m xterm"]
    assert run("-n", "1", "--", "sh", "-c", "echo $TERM $NO_COLOR").stdout == "[0] dumb 1\n"


def test_valgrind(tmp_path):
    if not shutil.which("valgrind"):
        pytest.skip("no valgrind here")
    run("-n", "1", "--valgrind", "--", "true")
    (tmp_path / "p.c").write_text("#include <stdlib.h>\nint main() { volatile int* p = malloc(4); free((void*)p); return *p == 1; }\n")
    subprocess.run(["gcc", "-g", "-w", "-o", tmp_path / "p", tmp_path / "p.c"], check=True)
    assert "Invalid read of size 4" in run("-n", "1", "--valgrind", "--", str(tmp_path / "p"), code=1).stderr


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
