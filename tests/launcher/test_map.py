"""tutti map, bind, verify as users start them. TUTTI: the program; MPIRUN: the launcher."""

import json
import os
import re
import shutil
import signal
import subprocess
import xml.etree.ElementTree

import pytest

TUTTI, MPIRUN = os.environ["TUTTI"], os.environ.get("MPIRUN", "mpirun")
PLACES = os.environ.get("PLACES")
MINE = sorted(os.sched_getaffinity(0))


def run(*command, code=0, **options):  # code None: any but 0
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == code if code is not None else done.returncode != 0, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def saved(path, host, packages, cores, gpus, model=""):
    """A machine's file: cores and GPUs of each package, which is a NUMA node."""
    ids = iter(range(1, 10000))
    everything = (1 << packages * cores) - 1

    def words(mask):
        return ",".join(f"0x{mask >> shift & 0xffffffff:08x}" for shift in range(mask.bit_length() // 32 * 32, -1, -32))

    def cpus(mask, node):
        sets = f'cpuset="{words(mask)}" complete_cpuset="{words(mask)}" nodeset="0x{node:08x}" complete_nodeset="0x{node:08x}"'
        return f'{sets} gp_index="{next(ids)}"'

    nodes = (1 << packages) - 1
    text = ['<?xml version="1.0"?><topology version="2.0">',
            f'<object type="Machine" os_index="0" {cpus(everything, nodes)} '
            f'allowed_cpuset="{words(everything)}" allowed_nodeset="0x{nodes:08x}">',
            f'<info name="HostName" value="{host}"/>']
    for p in range(packages):
        mine = cpus((1 << cores) - 1 << cores * p, 1 << p)
        text.append(f'<object type="Package" os_index="{p}" {mine}>')
        text.append(f'<object type="NUMANode" os_index="{p}" {mine} local_memory="17179869184"/>')
        for c in range(cores * p, cores * (p + 1)):
            text.append(f'<object type="Core" os_index="{c}" {cpus(1 << c, 1 << p)}><object type="PU" os_index="{c}" {cpus(1 << c, 1 << p)}/></object>')
        for bus in range(gpus * p + 1, gpus * (p + 1) + 1):
            bridge = f'type="Bridge" gp_index="{next(ids)}" bridge_type="0-1" depth="0" bridge_pci="0000:[{bus:02x}-{bus:02x}]"'
            gpu = f'type="PCIDev" gp_index="{next(ids)}" pci_busid="0000:{bus:02x}:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1"'
            named = f'<info name="PCIDevice" value="{model}"/>' if model else ""
            text.append(f'<object {bridge}><object {gpu} pci_link_speed="0.0">{named}</object></object>')
        text.append("</object>")
    path.write_text("\n".join([*text, "</object></topology>"]))
    return str(path)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Two packages of four cores, each with a GPU."""
    return saved(tmp_path_factory.mktemp("machine") / "machine.xml", "two", packages=2, cores=4, gpus=1)


def test_a_table(machine):
    lines = run(TUTTI, "map", "-n", "3", "--topology", machine).stdout.splitlines()
    assert lines[0] == "two: 8 cores, 8 CPUs, 2 NUMA nodes, 32 GiB, 2 GPUs"
    assert [line.split()[4] for line in lines[2:]] == ["0-1", "2-3", "4-7"]


def test_json(machine):
    plan = json.loads(run(TUTTI, "map", "--json", "--topology", machine).stdout)  # a rank for each GPU
    assert plan["schema"] == "tutti.map/1" and plan["host"] == "two" and len(plan["gpus"]) == 2
    assert [(rank["gpu"], rank["cpus"], rank["memory"]) for rank in plan["ranks"]] == [(0, "0-3", [0]), (1, "4-7", [1])]
    by_cores = json.loads(run(TUTTI, "map", "--json", "--topology", machine, "--bind", "cores", "-n", "4").stdout)
    assert [(rank["gpu"], rank["cpus"]) for rank in by_cores["ranks"]] == [(0, "0-1"), (0, "2-3"), (1, "4-5"), (1, "6-7")]


SVG = "{http://www.w3.org/2000/svg}"


def parts_of(part, x=0.0, y=0.0):
    """Each box and text of a picture, with its place."""
    if shift := re.match(r"translate\((\S+) (\S+)\)", part.get("transform", "")):
        x, y = x + float(shift[1]), y + float(shift[2])
    for inner in part:
        if inner.tag == SVG + "g":
            yield from parts_of(inner, x, y)
        elif inner.get("width") != "100%":  # the ground
            yield inner, x + float(inner.get("x", 0)), y + float(inner.get("y", 0))


def test_a_picture(machine, tmp_path):
    file = tmp_path / "map.svg"
    assert run(TUTTI, "map", "-n", "5", "--topology", machine, "--svg", str(file)).stdout == ""
    texts = [text.text for text in xml.etree.ElementTree.parse(file).getroot().iter(SVG + "text")]
    assert "two: 5 ranks, 2 GPUs, 8 cores" in texts and any(text.startswith("rank 4: 0000:02:00.0, CPUs ") for text in texts)
    for part in ("Package 0", "Package 1", "NUMA 0  ·  16 GiB", "NUMA 1  ·  16 GiB", "0000:01:00.0", "0000:02:00.0", *map(str, range(8))):
        assert texts.count(part) == 1, part  # packages, memory, GPUs, cores


@pytest.mark.parametrize("packages, cores, gpus, ranks", [(1, 4, 1, 1), (2, 8, 2, 4), (2, 32, 4, 8), (4, 24, 6, 24), (4, 24, 6, 2),
                                                          (8, 16, 0, 8), (2, 64, 4, 128)])
def test_pictures_fit_a_slide(packages, cores, gpus, ranks, tmp_path):
    """16:9, all of it inside, letters as large as they have to be; a narrow machine's title is long."""
    model = "Aldebaran/MI200 [Instinct MI250X/MI250]"
    machine = saved(tmp_path / "machine.xml", "node-with-a-long-name", packages, cores, gpus, model)
    run(TUTTI, "map", "-n", str(ranks), "--topology", machine, "--svg", str(tmp_path / "map.svg"))
    picture = xml.etree.ElementTree.parse(tmp_path / "map.svg").getroot()
    assert float(picture.get("width")) * 9 == float(picture.get("height")) * 16
    left, top, width, height = map(float, picture.get("viewBox").split())
    assert abs(width * 9 / 16 - height) < 1
    scale = float(picture.get("width")) / width
    for part, x, y in parts_of(picture):
        if part.tag == SVG + "rect":
            assert left <= x and x + float(part.get("width")) <= left + width
            assert top <= y and y + float(part.get("height")) <= top + height
        else:
            size = float(part.get("font-size"))
            words = 0.6 * size * len(part.text) * (1.1 if part.get("font-weight") else 1)
            begin = x - words / 2 if part.get("text-anchor") == "middle" else x
            assert left <= begin and begin + words <= left + width and top <= y - size and y <= top + height, part.text
            assert size * scale >= 12, part.text  # of 900
    assert any("24 GPUs" in text.text for text in picture.iter(SVG + "text")) == (packages * gpus == 24)


def test_a_damaged_file(machine, tmp_path):
    """hwloc 2.9 crashes."""
    text = open(machine).read()
    at = text.index(" complete_cpuset", text.index('type="Core"'))
    (tmp_path / "damaged.xml").write_text(text[:at] + " x" + text[at + 2:])
    damaged = str(tmp_path / "damaged.xml")
    assert "damaged.xml: hwloc can't read it" in run(TUTTI, "map", "--topology", damaged, code=1).stderr
    for command in (["map"], ["bind", "--", "true"], ["verify"]):
        assert "damaged.xml: hwloc can't read it" in run(TUTTI, *command, code=1, env=os.environ | {"TUTTI_TOPOLOGY": damaged}).stderr
    assert f"{tmp_path}: Is a directory" in run(TUTTI, "map", "--topology", str(tmp_path), code=1).stderr


def test_only_what_may_be_used_is_handed_out(machine):
    plan = json.loads(run(TUTTI, "map", "--json", env=os.environ | {"TUTTI_TOPOLOGY": machine, "CUDA_VISIBLE_DEVICES": "1"}).stdout)
    assert [(rank["gpu"], rank["cpus"]) for rank in plan["ranks"]] == [(1, "4-7")]


def test_this_machine():
    assert len(run(TUTTI, "map", "-n", "2").stdout.splitlines()) == 4


@pytest.mark.parametrize("arguments, said", [(["--topology", "/nowhere.xml"], "nowhere.xml: No such file"), (["-n", "0"], "not in range"), (["--bind", "sockets"], "sockets"),
                                             (["--svg", "/nowhere/x.svg"], "/nowhere/x.svg")])
def test_wrong_arguments(arguments, said):
    assert said in run(TUTTI, "map", *arguments, code=None).stderr


def test_bind_then_verify():
    done = run(MPIRUN, "-n", "2", TUTTI, "bind", "--", TUTTI, "verify")
    assert sorted(line.split(":")[0] for line in done.stdout.splitlines()) == ["local rank 0 of 2", "local rank 1 of 2"] and "granted" not in done.stdout


@pytest.mark.skipif(len(MINE) < 2, reason="one CPU: every binding is the same")
def test_verify_tells_a_difference():
    done = run(MPIRUN, "--bind-to", "none", "-n", "2", TUTTI, "verify", code=1)
    assert "granted: CPUs" in done.stdout


@pytest.mark.skipif(len(MINE) < 2, reason="one CPU: every binding is the same")
def test_what_the_user_has_bound_stays():
    done = run("taskset", "-c", str(MINE[-1]), TUTTI, "bind", "--", "grep", "Cpus_allowed_list", "/proc/self/status")
    assert done.stdout.split() == ["Cpus_allowed_list:", str(MINE[-1])] and f"stays on CPUs {MINE[-1]}" in done.stderr


def test_the_program_takes_over(tmp_path):
    assert run(TUTTI, "bind", "--", "sh", "-c", "exit 7", code=7).stdout == ""
    assert "No such file" in run(TUTTI, "bind", "--", str(tmp_path / "nothing"), code=127).stderr
    assert "Permission denied" in run(TUTTI, "bind", "--", str(tmp_path), code=126).stderr
    assert "PROGRAM" in run(TUTTI, "bind", code=106).stderr


def job(n, binding, *mpirun, code=0):
    hello = os.path.join(os.path.dirname(TUTTI), "..", "examples", "hello")
    return run(MPIRUN, *mpirun, "-n", str(n), hello, code=code, env=os.environ | {"TUTTI_LOG": "info", "TUTTI_BIND": binding}).stderr


@pytest.mark.skipif(MINE != [0, 1], reason="written for the two CPUs of the test machines")
def test_what_a_job_does():
    assert sorted(line.split("] ")[1] for line in job(2, "cores").splitlines() if "CPUs" in line) == ["CPUs 0: bound", "CPUs 1: bound"]
    assert job(2, "").count("CPUs left alone: fewer than two cores a rank") == 2
    assert "CPUs 0-1: bound" in job(1, "")  # mpirun has bound it to one
    assert job(2, "gpu", "--bind-to", "core").count("CPUs left as the user has bound them") == 2
    assert job(2, "user").count("left as the user") == 2 and "CPUs" not in job(2, "none")


def test_programs_that_have_started_mpi_themselves():
    """Their threads are their own, unless the user says so."""
    program = os.path.join(os.path.dirname(TUTTI), "..", "examples", "interop_mpi")
    assert "CPUs" not in run(MPIRUN, "-n", "2", program, env=os.environ | {"TUTTI_LOG": "info"}).stderr
    assert run(MPIRUN, "-n", "2", program, env=os.environ | {"TUTTI_LOG": "info", "TUTTI_BIND": "cores"}).stderr.count("bound") == 2
    assert "is 'sockets': expected gpu, cores, user or none" in run(MPIRUN, "-n", "2", program, code=None, env=os.environ | {"TUTTI_BIND": "sockets"}).stderr


def test_a_wrong_choice_ends_the_job():
    hello = os.path.join(os.path.dirname(TUTTI), "..", "examples", "hello")
    for _ in range(5):  # mpirun 4.1 crashes now and then when it hears of another rank's MPI_Abort while it ends
        done = subprocess.run([MPIRUN, "-n", "2", hello], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=os.environ | {"TUTTI_BIND": "sockets"})
        assert "is 'sockets': expected gpu, cores, user or none" in done.stderr
        if done.returncode != -signal.SIGSEGV:
            break
    assert done.returncode == 99, done.stderr
    assert "is 'sockets': expected gpu" in run(MPIRUN, "-n", "2", PLACES, "sockets", code=99).stderr


@pytest.mark.skipif(MINE != [0, 1], reason="written for the two CPUs of the test machines")
def test_what_decides_for_bind():
    def cpus(*options, **variables):
        local = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        return re.search(r"list: (.*)", run(TUTTI, "bind", *options, "--", "sh", "-c", "taskset -cp $$", env=os.environ | local | variables).stdout)[1]

    assert cpus() == "1" == cpus(TUTTI_BIND="cores") and cpus(TUTTI_BIND="none") == "0,1" == cpus(TUTTI_BIND="user")
    assert cpus("--bind", "gpu", TUTTI_BIND="none") == "1"  # the command's own word goes first
    assert cpus("--bind", "user") == "0,1" == cpus("--bind", "none", TUTTI_BIND="cores")
    assert "is 'foo': expected gpu" in run(TUTTI, "bind", "--", "true", code=99, env=os.environ | {"TUTTI_BIND": "foo"}).stderr
    # taskset before tutti run: mpirun would leave it
    out = run("taskset", "-c", "1", TUTTI, "run", "-n", "2", "--bind", "gpu", "--", "sh", "-c", "taskset -cp $$").stdout
    assert re.findall(r"list: (.*)", out) == ["1", "1"]


PRRTE = shutil.which("prterun") is not None  # of Open MPI 5: it binds no rank where it may oversubscribe, as tests have it


def test_ranks_that_see_different_gpus(machine):
    """As Slurm's --gpus-per-task has it: none may plan as if all shared its GPU."""
    text = f"CUDA_VISIBLE_DEVICES=$((1 - OMPI_COMM_WORLD_LOCAL_RANK)) exec {TUTTI} verify"
    out = run(MPIRUN, "-n", "2", "sh", "-c", text, code=0 if PRRTE else None, env=os.environ | {"TUTTI_TOPOLOGY": machine}).stdout
    lines = sorted(out.splitlines())
    cpus = ("0-1", "0-1") if PRRTE else ("4-7", "0-3")  # no CPUs are planned for ranks that are not bound
    assert f"CPUs {cpus[0]}, GPU 0000:02:00.0" in lines[0] and f"CPUs {cpus[1]}, GPU 0000:01:00.0" in lines[1]


@pytest.mark.skipif(MINE != [0, 1], reason="written for the two CPUs of the test machines")
def test_every_word_of_tutti_bind_is_a_word_of_the_option():
    """docs/cluster.md has one table for both."""
    local = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_MCA_orte_bound_at_launch": "1"}
    node = os.path.join(os.path.dirname(__file__), "..", "lab", "node.xml")
    env = os.environ | local | {"TUTTI_TOPOLOGY": node, "TUTTI_BIND": "cores"}
    for word, gpu in (("gpu", "0000:02:00.0"), ("cores", "0000:02:00.0"), ("user", "0000:02:00.0"), ("none", "")):
        out = run(TUTTI, "bind", "--bind", word, "--", "sh", "-c", "echo $TUTTI_BIND $TUTTI_GPU", env=env).stdout
        assert out.split() == [word, *gpu.split()]
        started = run(TUTTI, "run", "-n", "2", "--bind", word, "--dry-run", "--", "./program").stdout
        assert f"bind --bind {word} -- ./program" in started
    assert "nothing is planned" in run(TUTTI, "verify", "--bind", "none", env=env).stdout


def test_a_local_rank_that_does_not_come(machine):
    env = os.environ | {"TUTTI_TOPOLOGY": machine, "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_MCA_orte_bound_at_launch": "1", "PMIX_NAMESPACE": f"test-{os.getpid()}"}
    done = run(TUTTI, "verify", code=None, env=env)
    assert "not all local ranks have come to tutti verify within 10 s" in done.stderr and "CPUs 0-3, GPU 0000:01:00.0" in done.stdout


def test_what_user_and_variables_say(machine):
    assert "nothing is planned" in run(TUTTI, "verify", env=os.environ | {"TUTTI_BIND": "none"}).stdout
    assert run(TUTTI, "bind", "--bind", "cores", "--", "sh", "-c", "echo $TUTTI_BIND", env=os.environ | {"TUTTI_BIND": "gpu"}).stdout == "cores\n"
    text = f"{TUTTI} map -n 1 --topology <(cat {machine})"
    assert "two: 8 cores" in run("bash", "-c", text).stdout


DRIVER = '''
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int* device, int number) { *device = number; return 0; }
int cuDeviceGetPCIBusId(char* id, int size, int device) { __builtin_strcpy(id, "%s"); return 0; }
'''
NVML = '''
#include <string.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } PciInfo;
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** part) { *part = (void*)(strcmp(uuid, "MIG-b") ? 1L : 2L); return strlen(uuid) == 5 ? 0 : 6; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* part, void** whole) { *whole = part; return 0; }
int nvmlDeviceGetPciInfo_v3(void* whole, PciInfo* info) { info->bus = (unsigned)(long)whole; return 0; }
'''


def library(folder, name, text):
    (folder / "source.c").write_text(text)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / name, folder / "source.c"], check=True)
    return str(folder)


def test_verify_asks_what_device_0_is():
    node = os.path.join(os.path.dirname(__file__), "..", "lab", "node.xml")  # cuda0 to cuda3
    local = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_MCA_orte_bound_at_launch": "1", "TUTTI_TOPOLOGY": node, "TUTTI_BIND": "user"}

    def verify(variables, *options, code=0):
        return json.loads(run(TUTTI, "bind", *options, "--", "sh", "-c", f"{variables} {TUTTI} verify --json", code=code, env=os.environ | local).stdout)

    said = verify("")
    assert said["schema"] == "tutti.verify/1" and (said["local_rank"], said["granted"]["device"], said["planned"]["gpu"], said["differences"]) == (1, "0000:02:00.0", "0000:02:00.0", [])
    assert verify("CUDA_VISIBLE_DEVICES=3,1,0,2", code=1)["differences"] == ["device 0 is 0000:04:00.0, planned 0000:02:00.0"]
    kept = verify("", "--keep-devices")  # the program chooses by TUTTI_GPU
    assert (kept["granted"]["device"], kept["planned"]["gpu"], kept["differences"]) == ("", "0000:02:00.0", [])


def test_device_0_as_the_driver_has_it(tmp_path):
    """A library plays the driver."""
    root, probe = os.path.join(os.path.dirname(__file__), "..", ".."), str(tmp_path / "probe")
    text = '#include <stdio.h>\n#include "current_device.h"\nint main() { const auto id = tutti::launcher::current_device("nvidia"); puts(id ? id->c_str() : "none"); }'
    (tmp_path / "probe.cpp").write_text(text)
    subprocess.run(["g++", "-std=c++20", f"-I{root}/launcher", f"-I{root}/src", f"-I{root}/include", tmp_path / "probe.cpp", f"{root}/launcher/current_device.cpp",
                    f"{root}/launcher/run/process.cpp", "-lfmt", "-ldl", "-o", probe], check=True)
    for told, expected in (("00000000:C1:00.0", "0000:c1:00.0"), ("1:C1:00.0", "0001:c1:00.0"), ("", "none")):
        assert run(probe, env=os.environ | {"LD_LIBRARY_PATH": library(tmp_path, "libcuda.so.1", DRIVER % told)}).stdout == expected + "\n"


def test_parts_by_their_own_ids(machine, tmp_path):
    """MIG-<UUID> does not tell whose part it is; NVIDIA's library (this plays it) does."""
    env = os.environ | {"TUTTI_TOPOLOGY": machine, "LD_LIBRARY_PATH": library(tmp_path, "libnvidia-ml.so.1", NVML), "CUDA_VISIBLE_DEVICES": "MIG-b,MIG-a"}
    plan = json.loads(run(TUTTI, "map", "--json", env=env).stdout)
    assert [(plan["gpus"][rank["gpu"]]["pci"], plan["gpus"][rank["gpu"]]["uuid"], rank["cpus"]) for rank in plan["ranks"]] == [("0000:01:00.0", "MIG-a", "0-3"), ("0000:02:00.0", "MIG-b", "4-7")]
    assert "does not tell which GPU it is a part of" in run(TUTTI, "map", env=env | {"CUDA_VISIBLE_DEVICES": "MIG-unknown"}).stderr


def test_verify_tells_of_another_gpu(machine):
    done = run(TUTTI, "verify", code=1, env=os.environ | {"TUTTI_TOPOLOGY": machine, "TUTTI_GPU": "0000:02:00.0"})
    assert "GPU 0000:02:00.0, planned 0000:01:00.0" in done.stdout


@pytest.mark.skipif(MINE != [0, 1], reason="written for the two CPUs of the test machines")
def test_a_program_chooses_and_asks(machine):
    def places(n, *choice, **variables):
        return run(MPIRUN, "-n", str(n), PLACES, *choice, env=os.environ | variables).stdout.splitlines()

    assert places(2, "cores") == ["worker 0 bound - -: 0 memory 0: bound", "worker 1 bound - -: 1 memory 0: bound"]
    assert places(2, "none") == [f"worker {rank} left - -: {'0 1' if PRRTE else rank}: " for rank in (0, 1)]  # as mpirun has it
    assert places(2, "cores", TUTTI_BIND="user")[0].startswith("worker 0 left - -:")  # the user goes first
    gpus = [line.split()[3:5] for line in places(2, "user", TUTTI_TOPOLOGY=machine)]
    assert gpus == [["0000:01:00.0", "0000:01:00.0:"], ["0000:02:00.0", "0000:02:00.0:"]]


def test_verify_after_bind_on_a_machine_with_gpus(machine):
    """Each rank has its own order of GPUs then; the plan is the same."""
    lines = []
    for rank in (0, 1):
        env = os.environ | {"TUTTI_TOPOLOGY": machine, "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "CUDA_VISIBLE_DEVICES": f"{rank},{1 - rank}"}
        lines += run(TUTTI, "verify", code=None, env=env | {"TUTTI_BOUND": "1"}).stdout.splitlines()
    assert "CPUs 0-3, GPU 0000:01:00.0" in lines[0] and "CPUs 4-7, GPU 0000:02:00.0" in lines[1]


def test_one_wrong_setting_does_not_hide_the_others(tmp_path):
    file = saved(tmp_path / "node.xml", "elsewhere", packages=1, cores=4, gpus=0)
    shown = run(TUTTI, "map", env={**os.environ, "TUTTI_TOPOLOGY": str(file), "TUTTI_TIMEOUT": "nonsense"})
    assert "elsewhere" in shown.stdout
