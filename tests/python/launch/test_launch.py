"""What users start and what they see: programs run from the outside. MPIRUN: the launcher."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

MPIRUN = os.environ.get("MPIRUN", "mpirun")
HERE = os.path.dirname(os.path.abspath(__file__))
FUNCTIONS = os.path.dirname(HERE)
SESSIONS = {"thread": "tutti.ThreadedSession(2)", "process": "tutti.ProcessSession(2)"}


ENVIRONMENT = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", "") + ":" + FUNCTIONS, "PYTHONUNBUFFERED": ""}  # unbuffered, print writes a line in two parts


def run(*command, code=0, timeout=60, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, env=ENVIRONMENT, **options)
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def python(text, *arguments, code=0, **options):
    return run(sys.executable, "-X", "dev", "-X", "faulthandler", "-c", text, *arguments, code=code, **options)


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write


def mpi(n, *arguments, **options):
    return run(MPIRUN, "-n", str(n), sys.executable, *arguments, **options)


SCRIPT = """
import sys
import numpy as np
import tutti
session = tutti.Session()
session.import_python_module("functions")
x = session.broadcast(np.ones(3))
session.allreduce(x, x)
print(session.num_workers, x.debug_get_from_remote(session.num_workers - 1).numpy(), sys.argv[1:], __name__)
"""


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("launch", [["-m", "tutti"], []], ids=["-m tutti", "plain"])
def test_a_script(script, n, launch):
    done = mpi(n, *launch, script(SCRIPT), "a", "-b")
    assert done.stdout == f"{n} [{n}. {n}. {n}.] ['a', '-b'] __main__\n" and done.stderr == ""


def test_the_program_in_the_readme(tmp_path):
    with open(os.path.join(HERE, "..", "..", "..", "README.md")) as readme:
        (tmp_path / "rank_sum.py").write_text(readme.read().split("```python\n")[1].split("```")[0])
    assert mpi(3, "-m", "tutti", "rank_sum.py", cwd=tmp_path).stdout == "3.0\n"


def test_modules_beside_the_script(script, tmp_path):
    (tmp_path / "mine.py").write_text("import tutti\n@tutti.register_global_func('mine.f', override=True)\ndef f(): return tutti.worker.id()\n")
    text = "import tutti\ns = {}\ns.import_python_module('mine')\nprint(s.get_global_func('mine.f')().debug_get_from_remote(1))\n"
    assert mpi(2, "-m", "tutti", script(text.format("tutti.Session()"))).stdout == "1\n"
    assert run(sys.executable, script(text.format("tutti.ProcessSession(2)"))).stdout == "1\n"
    (tmp_path / "program.py").write_text(text.format("tutti.Session()"))
    assert mpi(2, "-m", "tutti", "-m", "program", cwd=tmp_path).stdout == "1\n"
    assert mpi(2, "-m", "tutti", "-c", text.format("tutti.Session()"), cwd=tmp_path).stdout == "1\n"


@pytest.mark.parametrize(
    "ending, code, said",
    [("sys.exit(3)", 3, ""), ("sys.exit()", 0, ""), ("sys.exit('no more')", 1, "no more\n"), ("raise SystemExit(True)", 1, ""),
     ("1 / 0", 1, "ZeroDivisionError: division by zero"), ("session.get_global_func('test.fail')(1); session.sync_all()", 1, "KeyError"),
     ("session.get_global_func('test.fail')(1)", 1, "KeyError"), ("session.shutdown(); session.sync_all()", 1, "shut down")])
def test_how_a_script_ends(script, ending, code, said):
    done = mpi(2, "-m", "tutti", script(SCRIPT + ending + "\n"), code=code, timeout=30)
    assert done.stdout.startswith("2 [2. 2. 2.]") and said in done.stderr
    if "Traceback" in done.stderr and "remote" not in done.stderr:
        lines = done.stderr.splitlines()
        assert lines[1].startswith('  File "') and "script.py" in lines[1], "frames of tutti or runpy are shown"


@pytest.mark.parametrize("hook, code, said", [("pass", 75, "tutti.Preempted"), ("raise KeyError('full')", 1, "KeyError: 'full'")])
def test_preemption(script, hook, code, said):
    done = mpi(2, "-m", "tutti", script("import os, signal, tutti\ns = tutti.Session()\necho = s.get_global_func('tutti.echo')\n"
                                        "def save():\n    print('saved', echo(3).debug_get_from_remote(1))\n"
                                        f"    {hook}\ns.on_preemption(save)\n"
                                        "os.kill(os.getpid(), signal.SIGUSR1)\necho(4)\nprint('not reached')\n"), code=code)
    assert done.stdout == "saved 3\n" and said in done.stderr


def test_a_time_limit_that_nobody_catches(script):
    assert "has waited 0." in mpi(2, "-m", "tutti", script(SCRIPT + "session.get_global_func('test.pause')(1.0)\nsession.sync_all(timeout=0.1)\n"), code=124).stderr


def test_daemon_threads_that_use_a_session_at_the_end():
    text = ("import threading, time, tutti\ns = tutti.ThreadedSession(2)\n@s.define\ndef nap():\n    import time\n    time.sleep(0.05)\n"
            "def use():\n    while True:\n        nap(); s.sync_all()\n"
            "threading.Thread(target=use, daemon=True).start()\ntime.sleep(0.2)\n")
    for _ in range(5):
        assert "Fatal" not in run(sys.executable, "-c", text, timeout=20).stderr


def test_a_subinterpreter_is_refused():
    text = ("try:\n    import _interpreters as interpreters\nexcept ImportError:\n    import _xxsubinterpreters as interpreters\n{}\n"
            "try:\n    said = interpreters.run_string(interpreters.create(), 'import tutti')\n"  # returned since Python 3.13, raised before
            "except Exception as error:\n    said = error\nprint('main interpreter' in str(said))\n")
    for first in ("", "import tutti"):
        assert run(sys.executable, "-c", text.format(first), timeout=20).stdout == "True\n"


@pytest.mark.parametrize("who", [0, 2])
def test_a_killed_rank_ends_the_job(script, who):
    begun = time.monotonic()
    done = subprocess.run([MPIRUN, "-n", "3", sys.executable, "-m", "tutti", script(SCRIPT + f"session.get_global_func('test.die')({who})\nsession.sync_all()\n")],
                          capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
    assert done.returncode != 0 and time.monotonic() - begun < 20
    assert "signal 9" in done.stderr and f"rank {who}" in done.stderr, done.stderr


def test_a_syntax_error(script):
    done = mpi(2, "-m", "tutti", script("import tutti\nthis is no Python\n"), code=1, timeout=20)
    assert "SyntaxError" in done.stderr and "script.py" in done.stderr and "runpy" not in done.stderr


def test_a_missing_script():
    assert "nowhere.py" in mpi(2, "-m", "tutti", "/nowhere.py", code=1, timeout=20).stderr


def test_usage():
    assert "usage: mpirun" in run(sys.executable, "-m", "tutti", "--help").stdout
    assert "usage: mpirun" in run(sys.executable, "-m", "tutti", code=2).stderr


@pytest.mark.parametrize("kind", SESSIONS)
def test_no_shutdown(kind):
    done = python(f"import numpy as np, tutti\ns = {SESSIONS[kind]}\ns.import_python_module('functions')\n"
                  "o = s.get_global_func('test.make_object')()\nx = s.broadcast(np.ones(3)); cycle = [s, o, x]; cycle.append(cycle)\n"
                  "f = s.get_global_func('test.add')\nfor i in range(1000): f(i, 1)\n", timeout=30)
    assert done.stderr == ""


@pytest.mark.parametrize("kind", SESSIONS)
def test_two_hundred_sessions(kind):
    done = python(f"import resource, tutti\n"
                  "def one():\n"
                  f"    with {SESSIONS[kind]} as s:\n"
                  "        s.import_python_module('functions')\n"
                  "        assert s.get_global_func('test.add')(1, 2).debug_get_from_remote(1) == 3\n"
                  "for i in range(50): one()\n"
                  "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
                  "for i in range(150): one()\n"
                  "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
                  "assert grown < 20000, f'{grown} KiB more'\n", timeout=120)
    assert done.stderr == ""


def test_live_sessions_overlap():
    assert python(f"import tutti\n"
                  "a, b, c = tutti.ThreadedSession(2), tutti.ThreadedSession(3), tutti.ProcessSession(2)\n"
                  "for s in (a, b, c): s.import_python_module('functions')\n"
                  "made = [s.get_global_func('test.places')() for s in (a, b, c)]\n"
                  "print([m.debug_get_from_remote(1)[1] for m in made])").stdout == "[2, 3, 2]\n"


@pytest.mark.parametrize("kind", SESSIONS)
def test_ctrl_c_during_a_sync(kind):
    program = subprocess.Popen(
        [sys.executable, "-c", f"import tutti\ns = {SESSIONS[kind]}\ns.import_python_module('functions')\n"
         "s.get_global_func('test.pause')(3.0)\nprint('waits', flush=True)\n"
         "try:\n    s.sync_all()\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
         "s.sync_all()\nprint(s.get_global_func('test.add')(1, 2).debug_get_from_remote(1))\n"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=ENVIRONMENT)
    assert program.stdout.readline() == "waits\n"
    time.sleep(0.3)
    begun = time.monotonic()
    os.killpg(program.pid, signal.SIGINT)
    assert program.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begun < 2
    out, err = program.communicate(timeout=30)
    assert out == "3\n" and err == "" and program.returncode == 0


LOSE = ("import os, tutti\ns = tutti.ProcessSession(2)\ns.import_python_module('functions')\npid = s.get_global_func('test.pid')\n"
        "victim = pid().debug_get_from_remote(1)\n"
        "def lose():\n    os.kill(victim, 9)\n    for _ in range(100):\n        pid()\n        s.sync_all(timeout=5)\n")


@pytest.mark.parametrize("inside", ["lose()", "with s: lose()"])
def test_a_caught_loss_is_not_told_again(inside):
    done = python(LOSE + f"try:\n    {inside}\nexcept tutti.TransportError as error:\n    print('signal 9' in str(error))\n", timeout=30)
    assert done.stdout == "True\n" and done.stderr == ""


def test_a_loss_that_nobody_was_told_of():
    """That it ends a session of the module's, and one of a function's."""
    end = "os.kill(victim, 9)\nimport time; time.sleep(0.3)\npid()\n"
    for begin in ("", "del s\n"):
        done = run(sys.executable, "-m", "tutti", "-c", LOSE + end + begin, code=1, timeout=30)
        assert done.stderr.count("signal 9") == 1 and done.stderr.count("end of a session") == 1, done.stderr


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("launch", ["", "-m tutti"], ids=["plain", "-m tutti"])
def test_stderr_can_t_be_written(script, launch, stderr):
    """Nothing is lost but the text, which goes nowhere else."""
    text = "import tutti\ndef main():\n    s = tutti.ThreadedSession(2)\n    s.get_global_func('nobody')\nmain()\nprint('after')\ns = tutti.ThreadedSession(1)\ns.get_global_func('nobody')\n"
    command = f"{sys.executable} {launch} {script(text)} {stderr}"
    code = 120 if "full" in stderr else 1 if launch else 0  # 120: Python's own for a stream that it can't flush
    assert run("sh", "-c", command, code=code).stdout == "after\n"
    assert run("sh", "-c", f"{sys.executable} {launch} {script('raise ValueError')} {stderr}", code=120 if "full" in stderr else 1).stdout == ""


def test_ctrl_c_while_a_session_goes():
    """The destructor can't raise it: the next line does."""
    done = python("import os, signal, threading, tutti\ndef main():\n    s = tutti.ThreadedSession(2)\n    s.import_python_module('functions')\n    s.sync_all()\n"
                  "    s.get_global_func('test.pause')(1.0)\n    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
                  "try:\n    main()\n    for _ in range(3): pass\n    print('went on')\nexcept KeyboardInterrupt:\n    print('interrupted')\n", timeout=30)
    assert done.stdout == "interrupted\n" and done.stderr == ""


def test_fork_afterwards():
    done = python(f"import os, tutti\ns = tutti.ThreadedSession(2)\ns.import_python_module('functions')\n"
                  "f = s.get_global_func('test.add')\nf(1, 2)\ns.sync_all()\n"
                  "import warnings\nwarnings.simplefilter('ignore')\n"  # Python 3.12 warns of every fork beside threads
                  "pid = os.fork()\n"
                  "if pid == 0:\n"
                  "    try:\n        f(1, 2)\n    except tutti.UsageError as error:\n        os._exit(7 if 'fork' in str(error) else 8)\n    os._exit(9)\n"
                  "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), f(3, 4).debug_get_from_remote(1))\n", timeout=30)
    assert done.stdout == "7 7\n" and done.stderr == ""


@pytest.mark.parametrize("launch", [["-m", "tutti"], []], ids=["-m tutti", "plain"])
def test_a_child_that_exits_leaves_the_job_alone(script, launch):
    done = mpi(2, *launch, script(SCRIPT + "import os\npid = os.fork()\nif pid == 0:\n    sys.exit(0)\nos.waitpid(pid, 0)\n"
                                  "print(session.get_global_func('test.add')(1, 2).debug_get_from_remote(1))\n"), timeout=30)
    assert done.stdout.endswith("\n3\n")


def test_a_session_that_a_worker_collects():
    done = python(f"import gc, tutti\ndef make():\n    s = {SESSIONS['thread']}\n    s_in_a_cycle = [s]\n    s_in_a_cycle.append(s_in_a_cycle)\n"
                  "gc.disable()\nmake()\ntutti.register_global_func('test.collect', lambda: gc.collect())\n"
                  "with tutti.ThreadedSession(2) as s:\n    s.get_global_func('test.collect')()\n    s.sync_all()\n"
                  "print(tutti.ThreadedSession(1))\n", timeout=30)
    assert done.stdout == "Session(thread, 1 worker, 1 group, ccl=auto, nodes=1)\n" and done.stderr == ""


@pytest.mark.parametrize("kind", SESSIONS)
def test_workers_print(kind):
    done = python(f"import tutti\nwith {SESSIONS[kind]} as s:\n    s.import_python_module('functions')\n"
                  "    s.get_global_func('test.say')('hello')\n")
    for w in (0, 1):  # threads of one interpreter may mix their ends of lines
        assert done.stdout.count(f"worker {w} says hello") == 1
    if kind == "process":
        assert sorted(done.stdout.splitlines()) == ["[worker 1] worker 1 says hello", "worker 0 says hello"]


def test_workers_end_as_programs_do(script, tmp_path):
    text = ("import sys, tutti\ns = tutti.ProcessSession(3)\n@s.define\ndef write(path):\n    import atexit, sys, tutti\n    me = tutti.worker.id()\n"
            "    sys.modules['kept'] = open(f'{path}/{me}', 'w')\n    sys.modules['kept'].write('kept')\n    atexit.register(lambda: print('ends', me))\n"
            "    sys.stdout.write('no end of line')\nwrite(sys.argv[1])\ns.sync_all()\n")
    for launch in ([], ["-m", "tutti"]):
        done = run(sys.executable, *launch, script(text), str(tmp_path))
        assert [done.stdout.count(f"ends {w}") for w in range(3)] == [1, 1, 1] and done.stdout.count("no end of line") == 3, done.stdout
        assert [(tmp_path / str(w)).read_text() for w in range(3)] == ["kept"] * 3


@pytest.mark.parametrize("launch", [["-m", "tutti"], []], ids=["-m tutti", "plain"])
def test_children_of_the_controller_do_not_keep_it(script, launch):
    text = ("import multiprocessing, tutti\ns = tutti.ProcessSession(3)\ns.sync_all()\n"
            "pool = multiprocessing.get_context('fork').Pool(2)\nprint(pool.map(abs, [-1, -2]))\n")
    assert run(sys.executable, *launch, script(text), timeout=20).stdout == "[1, 2]\n"


@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("child", ["return 0", "sys.exit(0)"])
def test_a_fork_that_comes_back_from_a_worker_function_ends(kind, child):
    done = python(f"import tutti\nwith {SESSIONS[kind]} as s:\n    @s.define\n    def fork():\n        import os, sys\n        pid = os.fork()\n        if pid == 0:\n"
                  f"            {child}\n        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
                  "    for i in range(2):\n        code = fork()\n        print([code.debug_get_from_remote(w) for w in (0, 1)])\n", timeout=20)
    assert done.stdout == "[1, 1]\n[1, 1]\n" and done.stderr.count("a fork of its process came back from") == 4, done.stderr


def test_a_worker_starts_another_program_of_tuttis():
    done = python("import tutti\nwith tutti.ProcessSession(2) as s:\n    @s.define\n    def start():\n        import os, subprocess, sys\n"
                  "        return subprocess.run([sys.executable, '-m', 'tutti', '-c', 'print(3)'], env=dict(os.environ), capture_output=True, text=True).stdout\n"
                  "    print(repr(start().debug_get_from_remote(1)))\n")
    assert done.stdout == "'3\\n'\n" and done.stderr == ""


def test_lines_of_workers_stay_whole(script):
    text = ("import tutti\nwith tutti.ProcessSession(4) as s:\n    @s.define\n    def talk(n):\n        import sys\n        for i in range(n):\n"
            "            print('a', i)\n            print('b', end='')\n            print()\n        sys.stdout.write('c\\nd\\n')\n        print('', end='')\n"
            "        print('e', file=sys.stderr)\n    talk(200)\n")
    done = run(sys.executable, script(text), timeout=30)
    for w in (1, 2, 3):
        mine = [line[len("[worker 1] "):] for line in done.stdout.splitlines() if line.startswith(f"[worker {w}] ")]
        assert mine == [line for i in range(200) for line in (f"a {i}", "b")] + ["c", "d"]
    assert sorted(done.stderr.splitlines()) == ["[worker 1] e", "[worker 2] e", "[worker 3] e", "e"]


def test_an_entrypoint():
    done = python(f"import tutti\ns = tutti.ProcessSession(2, entrypoint='functions')\n"
                  "print(s.get_global_func('test.add')(1, 2).debug_get_from_remote(1))")
    assert done.stdout == "3\n" and done.stderr == ""


def test_another_python_is_told(tmp_path):
    import shutil

    import tutti

    copy = tmp_path / "tutti"
    shutil.copytree(os.path.dirname(tutti.__file__), copy, ignore=shutil.ignore_patterns("*.so", "*.p"))
    (copy / "_core.cpython-27-x86_64-linux-gnu.so").write_text("")
    done = run(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tutti", code=1)
    assert "built for another Python (_core.cpython-27" in done.stderr


def test_builtins_are_known_before_the_first_session():
    assert python("import tutti; print(tutti.get_global_func('runtime.disco.compiled_ccl')())").stdout == "mpi\n"


def test_import_needs_no_numpy_and_starts_nothing():
    assert python("import sys, threading; sys.modules['numpy'] = None\nimport tutti\nprint(threading.active_count(), 'numpy' in repr(tutti))").stdout == "1 False\n"


def test_no_session_above_rank_0_of_a_job():
    done = mpi(2, "-c", "import tutti\ns = tutti.Session()\nprint(s.num_workers)\n")
    assert done.stdout == "2\n" and done.stderr == ""


def test_the_benchmark():
    rows = json.loads(mpi(2, "-m", "tutti", "-m", "tutti.bench", "--repeats", "1", "--format", "json").stdout)["rows"]
    assert len(rows) == 9 and all(row["value"] > 0 for row in rows)


@pytest.mark.parametrize("begin", ["session = tutti.Session()", "session = tutti.ProcessSession(2)", "session = tutti.ThreadedSession(2)"])
@pytest.mark.parametrize("inside", [True, False], ids=["with", "plain"])
def test_a_stuck_worker_at_the_end(script, begin, inside):
    """The def makes a cycle of the script's globals: the session lives until the interpreter ends."""
    text = (f"import tutti\ndef helper(): pass\n{begin}\n@session.define\ndef stuck():\n    import time\n    time.sleep(1000)\n"
            f"{'with session: ' if inside else ''}stuck(); session.sync_all(timeout=0.5)\n")
    launch = [MPIRUN, "-n", "2", sys.executable, "-m", "tutti"] if "Session()" in begin else [sys.executable]
    begun = time.monotonic()
    done = subprocess.run([*launch, script(text)], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
    assert done.returncode == 124 and "has waited 0." in done.stderr and time.monotonic() - begun < 20, done


@pytest.mark.parametrize("more", ["", "def helper(): pass\n"])
def test_failures_that_nobody_looked_at_fail_the_job(script, more):
    done = mpi(2, "-m", "tutti", script("import tutti\ns = tutti.Session()\ns.get_global_func('nobody')\n" + more), code=1)
    assert "no function 'nobody'" in done.stderr


def test_where_a_worker_function_went_wrong(script, tmp_path):
    (tmp_path / "broken.py").write_text("def load():\n    return {}['missing']\nload()\n")
    text = ("import tutti\nwith tutti.ThreadedSession(2) as s:\n    s.import_python_module('broken')\n    try:\n        s.sync_all()\n    except tutti.RemoteError as e:\n"
            "        print('in load' in e.failures[0].traceback, 'broken.py' in e.failures[0].traceback)\n"
            "    @s.define\n    def wrong():\n        import numpy as np\n        from tutti import worker\n        worker.world().allreduce(np.ones(3), np.zeros(4))\n"
            "    wrong()\n    try:\n        s.sync_all()\n    except tutti.RemoteError as e:\n        print(e.failures[0].kind, 'in wrong' in e.failures[0].traceback)\n")
    assert run(sys.executable, script(text)).stdout == "True True\ntutti.UsageError True\n"


def test_the_first_use_of_numpy_by_several_workers(script):
    text = ("import tutti\nfor _ in range(1):\n    with tutti.ThreadedSession(4) as s:\n        @s.define\n        def make():\n            import tutti\n"
            "            return tutti.tensor([1.0])\n        x = make()\n        print(x.debug_get_from_remote(3).shape)\n")
    for _ in range(3):
        assert run(sys.executable, script(text), timeout=20).stdout == "Shape(1,)\n"


def test_show_tells_the_gpus(monkeypatch):
    xml = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lab", "node.xml")  # four
    monkeypatch.setitem(ENVIRONMENT, "TUTTI_TOPOLOGY", xml)
    out = mpi(2, "-m", "tutti", "-c", "import tutti; s = tutti.Session(); print(s.show()); print([place.gpu_pci for place in s.places()])").stdout
    assert [line.split()[4] for line in out.splitlines()[2:4]] == ["cuda0", "cuda1"] and "['0000:01:00.0', '0000:02:00.0']" in out
