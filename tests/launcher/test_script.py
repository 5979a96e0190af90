"""tutti script; tests/lab/check_slurm.sh has Slurm read and run what it writes."""

import os
import signal
import subprocess

import pytest

TUTTI = os.environ["TUTTI"]


def script(*arguments, code=0):
    done = subprocess.run([TUTTI, "script", *arguments], capture_output=True, text=True, timeout=30, env=os.environ | {"PATH": f"{os.path.dirname(TUTTI)}:{os.environ['PATH']}"})
    assert done.returncode == code, done.stderr
    return done


def test_a_script():
    lines = script("-N", "2", "-n", "8", "--gpus-per-node", "4", "--time", "4:00:00", "--signal-before", "120", "--module", "openmpi/4.1", "--module", "cuda", "--", "./program", "a b").stdout.splitlines()
    assert lines[0] == "#!/bin/bash" and "tutti run -n 8 -- ./program 'a b' &" in lines
    for option in ("--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--gpus-per-node=4", "--time=4:00:00", "--signal=B:USR1@120"):
        assert f"#SBATCH {option}" in lines
    assert lines.index("module load openmpi/4.1") < lines.index("module load cuda") < lines.index("tutti run -n 8 -- ./program 'a b' &")
    assert script("-n", "8", "--", "./program").stdout.splitlines()[-1] == "tutti run -n 8 -- ./program"


def test_a_tutti_that_is_not_in_PATH():
    text = subprocess.run([TUTTI, "script", "-n", "2", "--", "true"], capture_output=True, text=True, env={"PATH": "/bin"}).stdout
    assert text.splitlines()[-1] == f"{os.path.realpath(TUTTI)} run -n 2 -- true"


@pytest.mark.parametrize("takes_s", [0, 1])
def test_a_warning_goes_to_the_ranks(tmp_path, takes_s):
    text = script("-n", "2", "--signal-before", "60", "--", "true").stdout
    (tmp_path / "tutti").write_text(f"#!/bin/bash\ntrap 'echo got; sleep {takes_s}; exit 75' USR1\necho ready\nwhile true; do sleep 0.05; done\n")
    (tmp_path / "tutti").chmod(0o755)
    job = subprocess.Popen(["bash", "-c", text], stdout=subprocess.PIPE, text=True, env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGUSR1)
    assert job.communicate(timeout=20)[0] == "got\n" and job.returncode == 75


def test_uneven_ranks_and_requeue(tmp_path):
    text = script("-N", "2", "-n", "3", "--requeue", "--", "true").stdout
    assert "#SBATCH --ntasks-per-node" not in text and "#SBATCH --requeue" in text
    (tmp_path / "tutti").write_text("#!/bin/sh\nexit $CODE\n")
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho \"$@\"\n")
    (tmp_path / "srun").write_text("#!/bin/sh\ncase \"$*\" in *'-w here'*) exit $HERE;; esac\nexit $NODES\n")
    for name in ("tutti", "scontrol", "srun"):
        (tmp_path / name).chmod(0o755)
    for code, here, nodes, said in ((75, 0, 0, "requeue 7\n"), (3, 0, 0, ""), (3, 0, 1, "requeue 7\n"), (3, 1, 1, ""), (0, 0, 1, "")):  # where srun fails by itself it would go on for ever
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin", "CODE": str(code), "HERE": str(here), "NODES": str(nodes), "SLURMD_NODENAME": "here", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"})
        assert (done.returncode, done.stdout) == (code, said)


def test_wrong_arguments():
    assert "PROGRAM" in script("-n", "2", code=106).stderr
    assert "--ranks" in script("--", "true", code=106).stderr
    for words in (["--name", "my job"], ["--output", "a b"], ["--module", ""], ["--partition", "a\n#SBATCH -w x"]):
        assert "without blanks" in script("-n", "1", *words, "--", "true", code=105).stderr
    for text in ("4h", "", "1:2:3:4", "tomorrow"):
        assert "a time as Slurm has it" in script("-n", "1", "--time", text, "--", "true", code=105).stderr
    for text in ("30", "30:00", "4:00:00", "2-12", "2-12:30:00"):
        assert f"#SBATCH --time={text}\n" in script("-n", "1", "--time", text, "--", "true").stdout
    assert "4 nodes for 2 ranks" in script("-N", "4", "-n", "2", "--", "true", code=1).stderr
    assert "not in range" in script("-N", "0", "-n", "1", "--", "true", code=105).stderr
    assert "expected one line" in script("-n", "1", "--sbatch", "--account=me\ntouch /tmp/x", "--", "true", code=105).stderr


def test_words_stay_words_in_the_shell(tmp_path):
    text = script("-n", "1", "--module", "$(touch${IFS}x)", "--module", "a;touch${IFS}x", "--sbatch=--comment=$(touch x)", "--", "echo", "$(touch x)").stdout
    (tmp_path / "tutti").write_text("#!/bin/sh\necho \"$@\"\n")
    (tmp_path / "module").write_text("#!/bin/sh\necho \"$@\"\n")
    for name in ("tutti", "module"):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.stdout == "load $(touch${IFS}x)\nload a;touch${IFS}x\nrun -n 1 -- echo $(touch x)\n" and not (tmp_path / "x").exists()
