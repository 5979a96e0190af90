"""tutti doctor finds what is wrong: each condition is made for real, as far as there is no GPU. TUTTI: the program."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

TUTTI = os.environ["TUTTI"]
NODE = str(pathlib.Path(__file__).parent.parent / "lab" / "node.xml")  # four NVIDIA GPUs
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def doctor(*options, before=(), without=(), code=None, **variables):
    """What it finds: by check, a list of findings that are no "ok"."""
    environment = {name: value for name, value in {**os.environ, **ROOT, **variables}.items() if name not in without}
    done = subprocess.run([*before, TUTTI, "doctor", "--json", *options], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=environment)
    report = json.loads(done.stdout)
    assert report["schema"] == "tutti.doctor/1" and report["host"]
    found = [finding for finding in report["findings"] if finding["level"] != "ok"]
    assert done.returncode == (1 if any(finding["level"] == "problem" for finding in found) else 0), done
    assert all(finding["fix"] for finding in found)
    return [(finding["check"], finding["level"], finding["text"]) for finding in found]


def only(findings, check, level, words):
    """That, and nothing else of this check."""
    mine = [finding for finding in findings if finding[0] == check]
    assert len(mine) == 1 and mine[0][1] == level and words in mine[0][2], findings


def with_shm(options, command="true"):
    """Before a program: with another /dev/shm, in a mount namespace of its own."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here (not root)")
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} tmpfs /dev/shm; {command}; exec "$@"', "-"]


def library(folder, name, text, compiler="gcc"):
    source = folder / "source.c"
    source.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname," + name, "-o", folder / name, source], check=True)
    return str(folder)


def test_all_is_well():
    assert [finding for finding in doctor() if finding[0] not in ("CPUs", "GPU driver")] == []  # this machine may be small
    text = subprocess.run([TUTTI, "doctor"], capture_output=True, text=True, env={**os.environ, **ROOT}).stdout
    assert "two ranks start and exchange messages; Open MPI v" in text


def test_tiny_shared_memory():
    only(doctor(before=with_shm("size=16M")), "shared memory", "problem", "/dev/shm: 16 MiB, 16 MiB free")


def test_no_shared_memory():
    only(doctor(before=with_shm("ro")), "shared memory", "problem", "can't be written: Read-only file system")


def test_full_shared_memory():
    only(doctor(before=with_shm("size=300M", "fallocate -l 200M /dev/shm/left")), "shared memory", "problem", "300 MiB, 100 MiB free")


def test_one_cpu():
    cpu = str(min(os.sched_getaffinity(0)))
    if os.cpu_count() == 1:
        pytest.skip("a machine with one CPU")
    only(doctor(before=["taskset", "-c", cpu]), "CPUs", "problem", f"1 of {os.cpu_count()} CPUs may be used: {cpu};")


def test_a_quota_of_cpu_time(tmp_path):
    group = f"/sys/fs/cgroup/cpu/tutti-test-{os.getpid()}"
    try:
        os.mkdir(group)
        pathlib.Path(group, "cpu.cfs_quota_us").write_text("150000")
    except OSError:
        if os.path.isdir(group):
            os.rmdir(group)
        pytest.skip("no control group of CPUs can be made here (version 1, root)")
    try:
        if os.sched_getaffinity(0).__len__() > 1:
            only(doctor(before=["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "-"]), "CPU time", "problem", "gives 1.5 CPUs' time to")
    finally:
        os.rmdir(group)


def test_oversubscription():
    ranks = os.cpu_count() + 1
    only(doctor("-n", str(ranks)), "oversubscription", "warning", f"{ranks} ranks on {len(os.sched_getaffinity(0))} CPU")


def test_root_without_the_variables():
    if os.geteuid() != 0:
        pytest.skip("not root")
    only(doctor(without=ROOT), "root", "warning", "plain mpirun refuses")
    assert subprocess.run(["mpirun", "-n", "1", "true"], capture_output=True, env={k: v for k, v in os.environ.items() if k not in ROOT}).returncode != 0  # it does


def test_temporary_folder():
    only(doctor(TMPDIR="/dev/null/folder"), "temporary folder", "problem", "/dev/null/folder can't be written: Not a directory")


def test_few_open_files():
    only(doctor(before=["sh", "-c", 'ulimit -n 200; exec "$@"', "-"]), "open files", "warning", "may open 200 files")


def test_no_mpirun(tmp_path):
    only(doctor(PATH=str(tmp_path)), "mpirun", "problem", "none in PATH")


def test_another_libmpi(tmp_path):
    """MPICH's, if it is here, else no MPI at all, under the name that tutti was linked with."""
    mpich = shutil.which("mpicc.mpich") and pathlib.Path("/usr/lib/x86_64-linux-gnu/libmpich.so.12")
    if mpich and mpich.exists():
        os.symlink(mpich, tmp_path / "libmpi.so.40")
    else:
        library(tmp_path, "libmpi.so.40", "int nothing;")
    findings = doctor(LD_LIBRARY_PATH=str(tmp_path))
    only(findings, "MPI library", "problem", f"tutti was not built with the libmpi that is found here ({tmp_path}/libmpi.so.40)")


def test_mpirun_of_another_mpi(tmp_path):
    if not shutil.which("mpiexec.mpich"):
        pytest.skip("no MPICH here")
    os.symlink(shutil.which("mpiexec.mpich"), tmp_path / "mpirun")
    only(doctor(PATH=f"{tmp_path}:{os.environ['PATH']}"), "mpirun", "problem", "no Open MPI's: HYDRA build details")
    (tmp_path / "mpirun").unlink()
    # as one that takes them: each rank is alone
    (tmp_path / "mpirun").write_text('#!/bin/bash\n[ "$1" != --version ] || { echo "HYDRA build details:"; exit; }\nwhile [ "${1#*tutti-mpi}" = "$1" ]; do shift; done\n"$@" & "$@"; wait\n')
    (tmp_path / "mpirun").chmod(0o755)
    only(doctor(PATH=f"{tmp_path}:{os.environ['PATH']}"), "mpirun", "problem", "each believes that it is alone: HYDRA build details: does not belong to")


def test_mpirun_of_another_version(tmp_path):
    mpirun = shutil.which("mpirun")
    (tmp_path / "mpirun").write_text(f'#!/bin/bash\n[ "$1" != --version ] || {{ echo "mpirun (Open MPI) 3.0.9"; exit; }}\nexec {mpirun} "$@"\n')
    (tmp_path / "mpirun").chmod(0o755)
    only(doctor(PATH=f"{tmp_path}:{os.environ['PATH']}"), "mpirun", "problem", "mpirun (Open MPI) 3.0.9, but libmpi (")


def test_mpi_without_threads(tmp_path):
    """A layer between program and MPI that asks for less, as profilers do."""
    text = "#include <mpi.h>\nint MPI_Init_thread(int* n, char*** a, int wanted, int* got) { return PMPI_Init_thread(n, a, MPI_THREAD_FUNNELED, got); }"
    library(tmp_path, "less.so", text, "mpicc")
    only(doctor(LD_PRELOAD=str(tmp_path / "less.so")), "MPI threads", "problem", "MPI gives thread level 1")


def test_ranks_that_do_not_answer():
    """No way for messages but TCP, and no network."""
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0:
        pytest.skip("no network namespaces here (not root)")
    only(doctor("--timeout", "10", before=["unshare", "-n"], OMPI_MCA_btl="tcp,self"), "MPI", "problem", "two ranks")


def test_gpus_without_a_driver():
    if os.path.exists("/proc/driver/nvidia/version"):
        pytest.skip("there is one")
    only(doctor(TUTTI_TOPOLOGY=NODE), "GPU driver", "problem", "4 NVIDIA GPUs on the bus, but no driver is loaded")


def test_gpus_hidden():
    only(doctor(TUTTI_TOPOLOGY=NODE, CUDA_VISIBLE_DEVICES=""), "GPUs", "problem", "0 of 4 may be used: CUDA_VISIBLE_DEVICES=''")
    findings = [finding for finding in doctor(TUTTI_TOPOLOGY=NODE, CUDA_VISIBLE_DEVICES="7") if finding[0] == "GPUs"]
    assert ("GPUs", "problem", "0 of 4 may be used: CUDA_VISIBLE_DEVICES='7'") in findings


def test_tells_what_it_finds_as_it_finds_it():
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0:
        pytest.skip("no network namespaces here (not root)")
    job = subprocess.Popen(["unshare", "-n", TUTTI, "doctor", "--timeout", "20"], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **ROOT, "OMPI_MCA_btl": "tcp,self"})
    assert "shared memory" in job.stdout.readline() and job.poll() is None
    job.terminate()
    job.communicate(timeout=30)


def test_without_tutti_mpi(tmp_path):
    shutil.copy(TUTTI, tmp_path / "tutti")
    done = subprocess.run([tmp_path / "tutti", "doctor"], capture_output=True, text=True, timeout=60, env={**os.environ, **ROOT})
    assert f"{tmp_path}/tutti-mpi is not there" in done.stdout and done.returncode == 1


def test_what_can_t_be_looked_at():
    only(doctor(TUTTI_TOPOLOGY="/dev/null/node.xml"), "GPUs", "problem", "/dev/null/node.xml")
    only(doctor("--launcher", "srun", PATH="/usr/bin:/bin", without=["SLURM_JOB_ID"]), "MPI", "problem", "srun")


# What follows plays driver and NCCL, by the stand-ins of tests/gpu: machines with a wrong one can't be had for a test.
STANDINS = pathlib.Path(TUTTI).parent.parent / "tests" / "gpu"
DRIVER = {"TUTTI_CUDA_LIBRARY": str(STANDINS / "libcuda.so.1")}
NCCL = {"TUTTI_NCCL_LIBRARY": str(STANDINS / "libnccl.so.2")}


def of_gpus(findings):
    return [finding for finding in findings if finding[0] in ("GPUs", "GPU driver", "NCCL", "RCCL")]


def test_variables_are_not_taken_for_the_driver_s_fault():
    for chosen, problems in (("2", []), ("", ["GPUs"])):
        findings = doctor(TUTTI_TOPOLOGY=NODE, CUDA_VISIBLE_DEVICES=chosen, **DRIVER, **NCCL)
        assert [check for check, level, _ in findings if check.startswith("GPU") and level == "problem"] == problems and "GPU driver" not in [check for check, _, _ in findings], findings


def with_driver(command="true"):
    """As where NVIDIA's module is loaded; `command` may make more of its files."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here (not root)")
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs tmpfs /proc/driver && mkdir -p /proc/driver/nvidia && echo 580 > /proc/driver/nvidia/version; {command}; exec "$@"', "-"]


NODES_GPU = "mkdir -p /proc/driver/nvidia/gpus/0000:01:00.0 && echo 'Device Minor: 7' > /proc/driver/nvidia/gpus/0000:01:00.0/information"


def test_containers_without_gpus(tmp_path):
    only(doctor(before=with_driver(), TUTTI_TOPOLOGY=NODE), "GPU driver", "problem", "/dev/nvidiactl is not here")
    if not os.path.exists("/usr/bin/nvidia-modprobe"):
        only(doctor(before=with_driver(NODES_GPU), TUTTI_TOPOLOGY=NODE), "GPUs", "warning", "none of 4: this container or batch job has not been given one")
    dev = "mkdir -p DEV && mount --bind /dev DEV && mount -t tmpfs tmpfs /dev && for f in null zero random urandom shm pts fd stdin stdout stderr ptmx; do ln -s DEV/$f /dev/$f; done; touch /dev/nvidiactl".replace("DEV", str(tmp_path / "dev"))
    only(doctor(before=with_driver(dev), TUTTI_TOPOLOGY=NODE), "GPU driver", "problem", "libcuda.so.1 is not here")
    only(doctor(before=with_driver(dev), TUTTI_TOPOLOGY=NODE, STANDIN_FAIL="cuInit:1:803", **DRIVER), "GPU driver", "problem", "cuInit fails with 803: the loaded module and libcuda.so.1 have different versions")


def test_nccl_too_new_for_the_driver(tmp_path):
    nccl = tmp_path / "libnccl.so.2"
    nccl.write_bytes(pathlib.Path(NCCL["TUTTI_NCCL_LIBRARY"]).read_bytes() + b"NCCL version 2.28.9+cuda13.0\0")
    here = {**DRIVER, "TUTTI_NCCL_LIBRARY": str(nccl), "LD_LIBRARY_PATH": f"{STANDINS}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    only(doctor(TUTTI_TOPOLOGY=NODE, STANDIN_VERSION="12020", **here), "NCCL", "problem", "is version 2.28.9+cuda13.0, the driver knows CUDA 12.2 at most")
    assert not of_gpus(doctor(TUTTI_TOPOLOGY=NODE, STANDIN_VERSION="13000", **here))


def test_what_init_ccl_would_refuse(tmp_path):
    old = library(tmp_path, "libcuda.so.1", "int cuInit(unsigned flags) { return 0; } int cuDriverGetVersion(int* version) { *version = 11080; return 0; } int cuDeviceGetCount(int* count) { *count = 4; return 0; }")
    for driver, words in (({"TUTTI_CUDA_LIBRARY": old + "/libcuda.so.1"}, "is older than CUDA 12"), ({**DRIVER, "STANDIN_VERSION": "11080"}, "is for CUDA 11.8, expected 12.0 or later")):
        only(doctor(TUTTI_TOPOLOGY=NODE, **driver, **NCCL), "GPU driver", "problem", words)
    for nccl, words in (({**NCCL, "STANDIN_NCCL_VERSION": "21800"}, "is version 2.18.0, expected 2.19 or later: GPUs exchange data by way of the host"), ({"TUTTI_NCCL_LIBRARY": "/none.so"}, "/none.so can't be loaded"), ({"TUTTI_NCCL_LIBRARY": DRIVER["TUTTI_CUDA_LIBRARY"]}, "has no ncclGetVersion")):
        only(doctor(TUTTI_TOPOLOGY=NODE, **DRIVER, **nccl), "NCCL", "warning", words)


def test_a_driver_that_crashes(tmp_path):
    library(tmp_path, "libcuda.so.1", "int cuInit(unsigned flags) { return *(volatile int*)0; }")
    only(doctor(TUTTI_TOPOLOGY=NODE, LD_LIBRARY_PATH=str(tmp_path)), "GPU driver", "problem", "the driver does not answer")
    library(tmp_path, "libnccl.so.2", "int ncclGetVersion(int* version) { return *(volatile int*)0; }")
    only(doctor(TUTTI_TOPOLOGY=NODE, **DRIVER, TUTTI_NCCL_LIBRARY=str(tmp_path / "libnccl.so.2")), "NCCL", "warning", "it crashes, or does not answer within 15 s, when it is loaded")
