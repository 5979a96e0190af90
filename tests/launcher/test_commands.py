"""Every subcommand of tutti: its help, a mistake, the manual page, completion. Without MPI: none of it is asked."""

import os
import re
import shutil
import subprocess

import pytest

TUTTI = os.environ["TUTTI"]


def run(*arguments, code=0, **options):
    done = subprocess.run([TUTTI, *arguments], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


COMMANDS = {  # a mistake in each: exit code and what is said
    "run": (["-n", "2"], 106, "PROGRAM is required"),
    "test": (["-n", "none", "--", "true"], 105, "none not in range"),
    "doctor": (["--timeout", "0"], 105, "above 0"),
    "script": (["-n", "1", "--signal-before", "0", "--", "true"], 105, "not in range"),
    "map": (["--topology", "/nowhere.xml"], 1, "/nowhere.xml"),
    "bind": (["--bind", "sockets", "--", "true"], 105, "sockets"),
    "verify": (["--bind", "sockets"], 105, "sockets"),
    "trace": (["report", "/nowhere"], 1, "/nowhere"),
    "repl": (["-n", "2"], 1, "no terminal"),
    "bench": (["alltoall"], 109, "alltoall"),
    "completion": (["fish"], 109, "fish"),
    "man": (["run"], 109, "run"),
}


@pytest.mark.parametrize("words", ["--version", "--help", "run --help", "man", "completion", "map", "map --json", "script -n 1 -- true", "run -n 1 --dry-run -- true"])
def test_output_that_can_t_be_written_is_an_error(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([TUTTI, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and done.stderr == "tutti: output is lost: standard output can't be written; is the disk full?\n"


def listed(text):
    return re.findall(r"^  ([a-z]\w*) ", text[text.index("Subcommands:"):], re.M)


def test_all_are_tested():
    assert listed(run("--help").stdout) == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    text = run(command, "--help").stdout
    assert f"Usage: tutti {command}" in text and "-h,--help" in text
    assert not re.search(r"->\d|OR \{", text)  # how CLI11 shows choices unless told


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistake(command):
    arguments, code, said = COMMANDS[command]
    done = run(command, *arguments, code=code)
    assert said in done.stderr and done.stdout == ""


def test_tutti_itself():
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", run("--version").stdout)
    assert "A subcommand is required" in run(code=106).stderr
    for words, said in ((["run", "-n", "2", "--log-dri", "x", "--", "true"], "unknown option --log-dri;"), (["run", "-n", "2", "--map-by", "node", "true"], "-L --map-by"), (["run", "-np", "2", "true"], "unknown option -np"),
                        (["rnu", "-n", "2", "--", "true"], "no command 'rnu'"), (["trace", "raport", "x"], "no command 'raport'; tutti trace --help")):
        assert said in run(*words, code=109).stderr
    for words, said in ((["--foo"], "unknown option --foo; tutti --help lists them"),
                        (["tutti", "--help"], "no command 'tutti'; tutti --help"),
                        (["bench", "allreduce", "--foo"], "unknown option --foo; tutti bench allreduce --help"),
                        (["allreduce", "--help"], "no command 'allreduce'; it is tutti bench allreduce\n"),
                        (["report", "x"], "no command 'report'; it is tutti trace report\n")):
        assert said in run(*words, code=109).stderr
    for words, said in ((["echo", "a", "--timeout", "50"], "'--timeout' may be the program's or tutti's"), (["bash", "-c", "true"], "'-c' may be the program's or tutti's"), (["./p", "[x]"], "'[x]' would be taken apart"),
                        (["tutti", "bind", "--", "true"], "'--' comes after the program")):
        assert said + ": put -- before the program" in run("run", "-n", "1", *words, code=109).stderr
    for seconds in ("5m", "inf", "nan", "0"):
        assert "expected a number of seconds above 0" in run("run", "-n", "1", "--timeout", seconds, "true", code=105).stderr
    assert "slurm not in {auto,mpirun,srun}" in run("run", "-n", "1", "--launcher", "slurm", "true", code=105).stderr
    assert "a host without a name" in run("run", "-n", "1", "--hosts", "", "true", code=105).stderr
    assert "fly" in run("fly", code=109).stderr and "A subcommand is required" in run("bench", code=106).stderr


def test_without_mpi():
    """Not even linked: map works on a laptop that has none."""
    assert "libmpi" not in subprocess.run(["ldd", TUTTI], capture_output=True, text=True).stdout
    assert run("map", "-n", "2").stdout.splitlines()[1].split()[0] == "rank"


def test_the_manual_page():
    page = run("man").stdout
    for command in COMMANDS:
        assert f".SS tutti {command}\n" in page
    assert "\\fB\\-n, \\-\\-ranks\\fR VALUE" in page and "\\fB\\-\\-dry\\-run\\fR\n" in page
    assert "\\fB\\-\\-launcher\\fR auto|mpirun|srun\n" in page and re.search(r"\\-timeout\\fR VALUE\n.*\. Default: 300\n", page) and re.search(r"\\-\\-ranks\\fR VALUE\n.*\. Required\n", page)
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True)
        assert done.stderr == "" and "tutti run" in re.sub(".\b", "", done.stdout)


def complete(*words):
    script = 'eval "$("$0" completion)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tutti; printf "%s\\n" "${COMPREPLY[@]}"'
    return subprocess.run(["bash", "-c", script, TUTTI, *words], capture_output=True, text=True, check=True).stdout.split()


def test_completion():
    assert complete("tutti", "d") == ["doctor"]
    assert complete("tutti", "run", "--ti") == ["--timeout"]
    assert complete("tutti", "trace", "") == ["report", "timeline", "-h", "--help"]
    assert complete("tutti", "trace", "timeline", "--o") == ["--output"]
    assert complete("tutti", "run", "-n", "2", "--max") == ["--max-restarts"]
    assert complete("tutti", "run", "--launcher", "") == ["auto", "mpirun", "srun"] and complete("tutti", "verify", "--bind", "c") == ["cores"]
    assert "seq" in complete("tutti", "run", "-n", "2", "--", "se")
    assert complete("tutti", "run", "-n", "2", "--", "ls", "--ti") == []  # the program's own
