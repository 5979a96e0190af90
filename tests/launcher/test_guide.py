"""The commands of docs/cluster.md do what they say. TUTTI: the program; SPMD: a program of MPI's."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

TUTTI, SPMD = os.environ["TUTTI"], os.environ["SPMD"]
GUIDE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "cluster.md").read_text()
COMMANDS = {span for span in re.findall(r"`([^`\n]+)`", GUIDE)
            if re.match(r"(tutti|mpirun|(SLURM_PMIX_FENCE=ring )?srun|sbatch|eval|lstopo|ompi_info|docker|apptainer|python3) ", span) and not re.search(r" (\.\.\.|--tag-output)$", span) and not re.fullmatch(r"tutti \w+( --[a-z-]+)?", span)}  # not the names of commands and their options

RUN_HERE = {  # as they stand; ./program is one
    "tutti run -n 4 -- ./program arguments": "[3]",
    'eval "$(tutti completion)"': "-F _tutti tutti",
    "tutti man | man -l -": "tutti",
    "tutti test -n 1,2,4,8 -- ./program": "4 passed, 0 failed, 0 skipped",
    "tutti script -N 2 -n 8 --gpus-per-node 4 --time 4:00:00 --signal-before 120 --requeue -- ./program > job; sbatch job": "#SBATCH --signal=B:USR1@120",
    "tutti map -n 8": "rank",
    "tutti map -n 8 --topology node.xml": "4 GPUs",
    "tutti map -n 8 --svg map.svg": "",
    "tutti map -n 8 --json": "tutti.map/1",
    "mpirun -n 4 tutti bind -- ./program": "",
    "mpirun -n 4 tutti bind -- tutti verify": "local rank 3 of 4",
    "tutti run -n 8 --hosts \"$(sort -u \"$PBS_NODEFILE\" | sed 's/$/:4/' | paste -sd,)\" -- ./program": "--host alpha:4,beta:4",
    'ompi_info | grep -E "ras|plm"': "MCA",
}
ELSEWHERE = {
    "tutti doctor --hosts a,b,c": "tests/lab/check_run_on_hosts.sh",
    "SLURM_PMIX_FENCE=ring srun --mpi=pmix ./program": "tests/lab/check_slurm.sh",
    "SLURM_PMIX_FENCE=ring srun --mpi=pmix --het-group=0,1 ./program": "tests/lab/check_slurm.sh",
    "sbatch --gpus-per-task=1": "tests/lab/check_slurm.sh",
    "tutti run -L --het-group=1": "tests/lab/check_slurm.sh",
    "sbatch -n2 : -N2 -n3": "tests/lab/check_slurm.sh",
}
NOT_HERE = {"docker run --shm-size=2g", "docker run --cpus", "docker run --gpus all", "apptainer run --nv", "apptainer exec image ./program",  # no containers
            "lstopo node.xml", "python3 -m tutti", "srun --pty bash"}  # commands of others, names


def test_all_commands_are_known():
    assert COMMANDS == RUN_HERE.keys() | ELSEWHERE.keys() | NOT_HERE


@pytest.mark.parametrize("command", RUN_HERE)
def test_command(command, tmp_path):
    (tmp_path / "program").symlink_to(shutil.which("echo"))
    (tmp_path / "node.xml").write_text((pathlib.Path(__file__).parent.parent / "lab" / "node.xml").read_text())
    (tmp_path / "nodes").write_text("beta\nalpha\nbeta\nalpha\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\nbash -n \"$1\" && cat \"$1\"\n")  # Slurm's own takes it in the lab
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    needs = re.search(r"ompi_info|man(?= -l)", command)
    if needs and not shutil.which(needs[0]):
        pytest.skip(f"no {needs[0]} here")
    if "ompi_info" in command and shutil.which("prte_info"):
        pytest.skip("Open MPI 5: prte_info says that")
    told = command
    if command.startswith("eval"):
        command += "; complete -p tutti"
    if "PBS" in command:
        command = command.replace("tutti run", "tutti run --dry-run")
    environment = {**os.environ, "PATH": f"{os.path.dirname(TUTTI)}:{tmp_path}/bin:{os.environ['PATH']}", "PBS_NODEFILE": "nodes", "MANPAGER": "cat", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 0 and RUN_HERE[told] in done.stdout, done
    assert "--svg" not in command or (tmp_path / "map.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("command", ELSEWHERE)
def test_a_lab_has_it(command):
    script = (pathlib.Path(__file__).resolve().parents[2] / ELSEWHERE[command]).read_text()
    for word in re.findall(r"\B--?[A-Za-z][-A-Za-z_=0-9,]*", command):
        assert word in script, word


def test_the_table_of_options():
    shown = subprocess.run([TUTTI, "run", "--help"], capture_output=True, text=True).stdout
    table = GUIDE[GUIDE.index("| `--dry-run`"):GUIDE.index("Lines are whole")]
    for option in re.findall(r"^\| `(--[a-z-]+)", table, re.M):
        assert option in shown, option
