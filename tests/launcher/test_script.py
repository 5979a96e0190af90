"""tutti script; tests/lab/check_slurm.sh has Slurm read and run what it writes."""

import os
import subprocess

TUTTI = os.environ["TUTTI"]


def script(*arguments, code=0):
    done = subprocess.run([TUTTI, "script", *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == code, done.stderr
    return done


def test_a_script():
    lines = script("-N", "2", "-n", "8", "--gpus-per-node", "4", "--time", "4:00:00", "--signal-before", "120", "--module", "openmpi/4.1", "--module", "cuda", "--", "./program", "a b").stdout.splitlines()
    assert lines[0] == "#!/bin/bash" and lines[-1] == "tutti run -n 8 -- ./program 'a b'"
    for option in ("--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--gpus-per-node=4", "--time=4:00:00", "--signal=USR1@120"):
        assert f"#SBATCH {option}" in lines
    assert lines.index("module load openmpi/4.1") < lines.index("module load cuda") < len(lines) - 1


def test_uneven_ranks_and_requeue(tmp_path):
    text = script("-N", "2", "-n", "3", "--requeue", "--", "true").stdout
    assert "#SBATCH --ntasks-per-node" not in text and "#SBATCH --requeue" in text
    (tmp_path / "tutti").write_text("#!/bin/sh\nexit $CODE\n")
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho \"$@\"\n")
    (tmp_path / "srun").write_text("#!/bin/sh\nexit $NODES\n")
    for name in ("tutti", "scontrol", "srun"):
        (tmp_path / name).chmod(0o755)
    for code, nodes, said in ((75, 0, "requeue 7\n"), (3, 0, ""), (3, 1, "requeue 7\n"), (0, 1, "")):
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin", "CODE": str(code), "NODES": str(nodes), "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"})
        assert (done.returncode, done.stdout) == (code, said)


def test_wrong_arguments():
    assert "PROGRAM" in script("-n", "2", code=106).stderr
    assert "--ranks" in script("--", "true", code=106).stderr
    assert "not in range" in script("-N", "0", "-n", "1", "--", "true", code=105).stderr
