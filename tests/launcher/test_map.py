"""tutti map, bind, verify as users start them. TUTTI: the program; MPIRUN: the launcher."""

import json
import os
import subprocess
import xml.etree.ElementTree

import pytest

TUTTI, MPIRUN = os.environ["TUTTI"], os.environ.get("MPIRUN", "mpirun")
MINE = sorted(os.sched_getaffinity(0))


def run(*command, code=0, **options):  # code None: any but 0
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == code if code is not None else done.returncode != 0, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Two packages of four cores, each with a GPU."""
    path = tmp_path_factory.mktemp("machine") / "machine.xml"
    ids = iter(range(1, 1000))

    def cpus(mask, node):
        return f'cpuset="0x{mask:08x}" complete_cpuset="0x{mask:08x}" nodeset="0x{node:08x}" complete_nodeset="0x{node:08x}" gp_index="{next(ids)}"'

    text = ['<?xml version="1.0"?><topology version="2.0">',
            f'<object type="Machine" os_index="0" {cpus(0xff, 3)} allowed_cpuset="0x000000ff" allowed_nodeset="0x00000003"><info name="HostName" value="two"/>']
    for p in (0, 1):
        text.append(f'<object type="Package" os_index="{p}" {cpus(0xf << 4 * p, 1 << p)}>')
        text.append(f'<object type="NUMANode" os_index="{p}" {cpus(0xf << 4 * p, 1 << p)} local_memory="17179869184"/>')
        for c in range(4 * p, 4 * p + 4):
            text.append(f'<object type="Core" os_index="{c}" {cpus(1 << c, 1 << p)}><object type="PU" os_index="{c}" {cpus(1 << c, 1 << p)}/></object>')
        text.append(f'<object type="Bridge" gp_index="{next(ids)}" bridge_type="0-1" depth="0" bridge_pci="0000:[{p + 1:02x}-{p + 1:02x}]">'
                    f'<object type="PCIDev" gp_index="{next(ids)}" pci_busid="0000:{p + 1:02x}:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="0.0"/></object>')
        text.append("</object>")
    path.write_text("\n".join([*text, "</object></topology>"]))
    return str(path)


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


def test_a_picture(machine, tmp_path):
    file = tmp_path / "map.svg"
    assert run(TUTTI, "map", "-n", "5", "--topology", machine, "--svg", str(file)).stdout == ""
    picture = xml.etree.ElementTree.parse(file).getroot()
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "two: 5 ranks, 2 GPUs, 8 cores" in texts and any(text.startswith("rank 4: 0000:02:00.0, CPUs ") for text in texts)
    width, height = float(picture.get("width")), float(picture.get("height"))
    for box in list(picture.iter("{http://www.w3.org/2000/svg}rect"))[1:]:
        assert float(box.get("x")) + float(box.get("width")) <= width and float(box.get("y")) + float(box.get("height")) <= height


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


def test_a_wrong_choice_ends_the_job():
    assert "TUTTI_BIND=sockets: expected gpu, cores, user or none" in job(2, "sockets", code=99)


def test_verify_after_bind_on_a_machine_with_gpus(machine):
    """Each rank has its own order of GPUs then; the plan is the same."""
    lines = []
    for rank in (0, 1):
        env = os.environ | {"TUTTI_TOPOLOGY": machine, "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "CUDA_VISIBLE_DEVICES": f"{rank},{1 - rank}"}
        lines += run(TUTTI, "verify", code=None, env=env | {"TUTTI_BOUND": "1"}).stdout.splitlines()
    assert "CPUs 0-3, GPU 0000:01:00.0" in lines[0] and "CPUs 4-7, GPU 0000:02:00.0" in lines[1]
