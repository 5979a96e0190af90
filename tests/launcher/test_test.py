"""tutti test and tutti/testing.h. TUTTI: the program; SPMD: spmd.cpp."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree

import pytest

TUTTI, SPMD = os.environ["TUTTI"], os.environ["SPMD"]


def run(*arguments, code=0, timeout=60, **variables):
    done = subprocess.run([TUTTI, "test", *arguments], capture_output=True, text=True, errors="replace", timeout=timeout, stdin=subprocess.DEVNULL, env={**os.environ, **variables})
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_several_rank_counts():
    out = run("-n", "1,2,3,4,8", "--", SPMD)
    assert re.findall(r"^spmd, (\d) ranks?: passed", out, re.M) == ["1", "2", "3", "4", "8"]
    assert out.endswith("5 passed, 0 failed, 0 skipped\n")
    assert "[ RUN" not in out  # what passes is not heard


@pytest.mark.parametrize("how, message", [("expect", "on purpose"), ("throw", "thrown on purpose")])
def test_a_failure_on_one_rank(how, message):
    out = run("-n", "1,3", "--", SPMD, "--gtest_filter=-*Death*", code=1, BREAK=how)  # these warn of threads, on each rank
    assert out.count("on rank 2: ") == 1 and message in out  # told once, by rank 0
    assert how == "throw" or re.search(r"^\[0\] .*spmd\.cpp:\d+: Failure", out, re.M)
    assert not re.search(r"^\[[12]\]", out, re.M)
    assert "[0] [  FAILED  ] Spmd.Sum" in out and "[0] [       OK ] Spmd.NeedsTwoRanks" in out  # it goes on
    assert out.endswith("0 passed, 2 failed, 0 skipped\n")


@pytest.mark.parametrize("how, reason", [("kill", "exit code 137: Killed"), ("segv", "exit code 139: Segmentation fault"), ("abort", "exit code 7"), ("exit", "exit code 3")])
def test_a_rank_ends(how, reason):
    assert f"spmd, 2 ranks: FAILED: {reason} (" in run("-n", "2", "--", SPMD, code=1, BREAK=how)


def test_a_rank_hangs():
    begun = time.monotonic()
    out = run("-n", "3", "--timeout", "6", "--", SPMD, code=1, BREAK="hang")
    assert time.monotonic() - begun < 23
    assert re.search(r"tutti: rank 2 \(pid \d+\): .*Spmd_Sum_Test::TestBody \(", out), out
    assert "tutti: not in MPI, where others wait: rank 2;" in out
    assert "rank 2 is in Spmd.Sum" in out  # by itself, on SIGUSR2
    assert "spmd, 3 ranks: FAILED: time-out: rank 2 not in MPI, where others wait (" in out


def test_a_rank_hangs_in_another_thread():
    out = run("-n", "2", "--timeout", "6", "--", SPMD, "--gtest_filter=*Sum*", code=1, BREAK="hang in a thread")
    assert re.search(r"rank 1 \(pid \d+\): .*; thread \d+: MPI_Recv", out), out
    assert "not in MPI" not in out


def test_an_assertion_that_leaves_others_in_a_collective():
    out = run("-n", "3", "--timeout", "6", "--", SPMD, code=1, BREAK="assert")
    assert re.search(r"rank 2 waits for the others after Spmd.AssertBeforeACollective, where it has failed: \S*spmd.cpp:\d+: (.*\n)*?.*on purpose", out), out


@pytest.mark.parametrize("how, words", [("environment-fails", "on rank 2: Failed"), ("suite-fails", "on rank 2: Failed")])
def test_a_set_up_fails_on_one_rank(how, words):
    begun = time.monotonic()
    out = run("-n", "3", "--", SPMD, code=1, BREAK=how)
    assert time.monotonic() - begun < 30  # nobody waits for who does not come
    assert words in out and "on purpose" in out and "spmd, 3 ranks: FAILED: exit code 1 (" in out
    assert ("[       OK ] Spmd.Sum" in out) == (how == "suite-fails") and "[       OK ] Prepared." not in out


def test_a_set_up_skips_on_one_rank(tmp_path):
    out = run("-n", "3", "--junit", str(tmp_path / "results.xml"), "--", SPMD, code=77, BREAK="environment-skips")
    assert "spmd, 3 ranks: skipped: " in out
    root = xml.etree.ElementTree.parse(tmp_path / "results.xml").getroot()
    assert (root.get("tests"), root.get("skipped")) == ("1", "1") and root.find("./testsuite/testcase/skipped").get("message")  # none of those that GoogleTest takes for run
    out = run("-n", "3", "-v", "--", SPMD, BREAK="suite-skips")
    assert out.count("[  SKIPPED ] Prepared.") >= 2 and "[       OK ] Spmd.Sum" in out
    assert "skipped: " in run("-n", "2", "--", SPMD, "--gtest_filter=Prepared.*", code=77, BREAK="suite-skips")


def test_output_without_end_is_cut():
    out = run("-n", "1", "--", "bash", "-c", "echo begins; seq 1000000; echo ends; exit 1", code=1)
    assert "[0] begins\n[0] 1\n" in out and "[0] 1000000\n[0] ends\n" in out and " bytes are left out ..." in out and len(out) < 4 << 20


def test_no_colours_where_nobody_looks():
    assert "\033[" not in run("-n", "1", "-v", "--", SPMD)


def test_exit_codes():
    assert "spmd, 1 rank: skipped: needs two ranks (" in run("-n", "1", "--", SPMD, "--gtest_filter=*NeedsTwo*", code=77)
    for slip in ("--gtest_filter=*Nothing*", "--gtest_flter=x"):
        assert "no test was run" in run("-n", "2", "--", SPMD, slip, code=99)
    run("-n", "1", "--", SPMD, "--help")
    out = run("-n", "1,2", "--", SPMD, "--gtest_filter=*NeedsTwo*")
    assert out.endswith("1 passed, 0 failed, 1 skipped\n")
    assert "its set-up is wrong" in run("-n", "1", "--", SPMD, code=99, BREAK="set-up")
    run("-n", "1", "--", "/no/such/program", code=99)
    run("-n", "0", "--", SPMD, code=105)  # CLI11's ValidationError
    assert "exit code 124 (" in run("-n", "1", "--", "bash", "-c", "exit 124", code=1)  # no time-out of ours
    run("--", SPMD, "--gtest_filter=*Sum*")


def test_any_program():
    out = run("-n", "1,2", "--", "bash", "-c", "echo rank $OMPI_COMM_WORLD_RANK says no; exit $OMPI_COMM_WORLD_RANK", code=1)
    assert "bash, 1 rank: passed" in out and "bash, 2 ranks: FAILED: exit code 1" in out and "[1] rank 1 says no" in out


def test_the_guides_example(tmp_path):
    here = pathlib.Path(__file__).resolve().parents[2]
    (tmp_path / "ring_test.cpp").write_text(re.search(r"```cpp\n(.*?)```", (here / "docs/testing.md").read_text(), re.S)[1])
    compiler = shutil.which("mpicxx") or pytest.skip("no mpicxx")
    subprocess.run([compiler, "-std=c++20", f"-I{here}/include", "ring_test.cpp", "-lgtest", "-o", "ring_test"], cwd=tmp_path, check=True, timeout=120)
    assert run("-n", "1,2,4", "--", str(tmp_path / "ring_test")).endswith("2 passed, 0 failed, 1 skipped\n")


def test_shuffled():
    run("-n", "4", "--", SPMD, "--gtest_shuffle", "--gtest_repeat=3")


def test_junit(tmp_path):
    file = tmp_path / "results.xml"
    (tmp_path / "tmp").mkdir()
    run("-n", "1,2", "--junit", str(file), "--", SPMD, code=1, BREAK="expect", TMPDIR=str(tmp_path / "tmp"))
    assert not [name for name in os.listdir(tmp_path) + os.listdir(tmp_path / "tmp") if name.startswith("tutti-test-")]
    root = xml.etree.ElementTree.parse(file).getroot()
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("skipped")) for suite in root] == [("spmd, 1 rank", "6", "1", "1"), ("spmd, 2 ranks", "6", "1", "0")]
    failed = root.find("./testsuite[2]/testcase[@name='Sum']")
    assert failed.get("classname") == "Spmd" and "on rank 1" in failed.find("failure").text and "on purpose" in failed.find("failure").text
    run("-n", "2", "--junit", str(file), "--", SPMD, code=1, BREAK="kill")  # no results of GoogleTest's then
    root = xml.etree.ElementTree.parse(file).getroot()
    assert root.find("./testsuite/testcase/failure").get("message") == "exit code 137: Killed"
    assert [(case.get("classname"), case.get("name")) for case in root.iter("testcase")] == [("Spmd", "Sum")]  # where it was
    run("-n", "1", "--junit", str(file), "--", "bash", "-c", r"printf '\x01<&\xff\n'; exit 1", code=1)
    assert "?<&" in xml.etree.ElementTree.parse(file).getroot().find("./testsuite/testcase/failure").text
    run("-n", "1", "--junit", "/dev/null/file", "--", "true", code=99)
    run("-n", "1", "--junit", str(file), "--", SPMD)
    assert xml.etree.ElementTree.parse(file).getroot().find("./testsuite/testcase[@name='NeedsTwoRanks']/skipped").get("message") == "needs two ranks"
    out = run("-n", "1", "-v", "--junit", str(file), "--", "bash", "-c", "echo last words; exit 1", code=1)
    assert out.count("[0] last words\n") == 1 and "[0] last words" in xml.etree.ElementTree.parse(file).getroot().find("./testsuite/testcase/failure").text
    assert "skipped: no such machine (" in run("-n", "1", "-v", "--", "bash", "-c", "echo no such machine; exit 77", code=77)


CRASHES = r"""
say() { echo "[ RUN      ] Suite.$1"; [ -z "$2" ] || echo "$2 Suite.$1 (0 ms)"; }
if [ $OMPI_COMM_WORLD_RANK = 1 ]; then say First "[       OK ]"; say Other/0 "[  FAILED  ]"; say Dies/1; kill -SEGV $$; fi
say First; sleep 20
"""


@pytest.mark.parametrize("program, expected", [(CRASHES, ("Suite", "Dies/1")), ("kill -SEGV $$", ("tutti test", "bash, 2 ranks")),
                                               (CRASHES.replace("kill", "exit 3; true"), ("Suite", "Dies/1")),
                                               (CRASHES.replace("say Dies/1;", ""), ("tutti test", "bash, 2 ranks"))])
def test_junit_names_the_test_of_the_rank_that_crashed(program, expected, tmp_path):
    """Every rank speaks, as with GoogleTest alone. Without a test that has begun the program is named."""
    file = tmp_path / "results.xml"
    run("-n", "2", "--junit", str(file), "--", "bash", "-c", program, code=1)
    cases = list(xml.etree.ElementTree.parse(file).getroot().iter("testcase"))
    assert [(case.get("classname"), case.get("name")) for case in cases] == [expected]
    assert cases[0].find("failure").get("message").startswith("exit code ")


def test_tap():
    out = run("-n", "1,2", "--tap", "--", SPMD, "--gtest_filter=*NeedsTwo*:*Sum*", code=1, BREAK="kill")
    assert out.startswith("TAP version 13\n1..2\nnot ok 1 - spmd, 1 rank\n# exit code 137: Killed\n# ")
    out = run("-n", "1,2", "--tap", "--", SPMD, "--gtest_filter=*NeedsTwo*")
    assert re.search(r"^ok 1 - spmd, 1 rank # SKIP .*\nok 2 - spmd, 2 ranks$", out, re.M), out


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("program", [["sleep", "100"], ["bash", "-c", "trap 'exit 0' INT TERM; sleep 100 & wait"]])
def test_signals_end_it(number, code, program):
    tutti = subprocess.Popen([TUTTI, "test", "-n", "2,2", "--", *program], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    time.sleep(2)
    tutti.send_signal(number)
    assert "passed" not in tutti.communicate(timeout=15)[0]
    assert tutti.returncode == code
