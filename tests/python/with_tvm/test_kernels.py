"""Libraries of kernels that were built with tvm-ffi's headers, with and without libtvm_ffi; and our abi.h against its c_api.h."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import tvm_ffi.cpp
import use_kernels
from conftest import KIND, WORKERS

HERE = pathlib.Path(__file__).parent
INCLUDE = pathlib.Path(tvm_ffi.__file__).parent / "include"
ABI = HERE.parents[2] / "include" / "tutti" / "abi.h"
WITHOUT_WHEEL = sys._base_executable
WAYS = [(sys.executable, "before")]
if KIND != "mpi":
    WAYS += [(sys.executable, "after"), (sys.executable, "no"), (WITHOUT_WHEEL, "no")]


def compile_with(compiler, source, to, *options):
    subprocess.run([*compiler, str(source), "-o", str(to), f"-I{INCLUDE}", *options], check=True)
    return str(to)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """As C++ builds it by hand, without a link to libtvm_ffi, and as the wheel's own builder does."""
    folder = tmp_path_factory.mktemp("kernels")
    by_hand = compile_with(["g++", "-O1", "-std=c++17", "-fPIC", "-shared"], HERE / "kernels.cc", folder / "by_hand.so", '-DNAME="by_hand"')
    return {"by hand": by_hand, "builder": tvm_ffi.cpp.build("kernels", cpp_files=[str(HERE / "kernels.cc")], build_directory=str(folder / "built"))}


@pytest.mark.parametrize("built", ["by hand", "builder"])
@pytest.mark.parametrize("python, ffi", WAYS)
def test_kernels(libraries, built, python, ffi):
    if KIND == "mpi":  # in this program, whose ranks there are
        return use_kernels.run(libraries[built], KIND, WORKERS, ffi)
    done = subprocess.run([python, str(HERE / "use_kernels.py"), libraries[built], KIND, str(WORKERS), ffi], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    is_there = ffi != "no" or (built == "builder" and python == sys.executable)  # which finds it in the wheel
    assert done.stdout.split()[-1] == str(is_there)


def names_in(header):
    """{type: fields} of the structs, and the enumerators."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.S)
    structs = {}
    for body, name in re.findall(r"typedef struct(?: \w+)? \{(.*?)\n\} (\w+);", text, flags=re.S):
        declared = re.sub(r"\([^()]*\)(?=;)", "", body)  # the parameters of function pointers
        structs[name] = re.findall(r"(\w+)\)?\s*[,;]", re.sub(r"\[[^\]]*\]|union \{|\n  \};", "", declared))
    return structs, re.findall(r"\b(kTVMFFI\w+) =", text)


def test_the_interface_is_that_of_the_wheel(tmp_path):
    """Sizes, offsets and numbers, by a program with each header; and the functions, by one with both."""
    structs, enumerators = names_in(ABI)
    assert {"TVMFFIObject", "TVMFFIAny", "TVMFFIErrorCell", "TVMFFITypeInfo", "TVMFFISeqCell", "DLManagedTensorVersioned"} <= set(structs)
    assert structs["TVMFFIErrorCell"] == ["kind", "message", "backtrace", "update_backtrace", "cause_chain", "extra_context"]
    lines = [f'printf("{name} %d\\n", (int){name});' for name in enumerators]
    for struct, fields in structs.items():
        lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
        lines += [f'printf("{struct}.{f} %zu %zu\\n", offsetof({struct}, {f}), sizeof((({struct}*)0)->{f}));' for f in fields if f != "padding"]
    body = "#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n"
    said = {}
    for name, header in {"ours": f'"{ABI}"', "theirs": "<tvm/ffi/c_api.h>"}.items():
        source = tmp_path / f"{name}.c"
        source.write_text(f"#include {header}\n{body}")
        said[name] = subprocess.run([compile_with(["gcc"], source, tmp_path / name)], capture_output=True, text=True, check=True).stdout
    assert said["ours"] == said["theirs"] and len(said["ours"].splitlines()) > 80
    both = tmp_path / "both.cpp"
    both.write_text(f'#include <tvm/ffi/c_api.h>\n#include <tvm/ffi/extra/c_env_api.h>\n#include "{ABI}"\n')
    compile_with(["g++", "-c", "-Wall", "-Werror"], both, tmp_path / "both.o")


def test_the_builtin_types_are_those_of_the_wheel(tmp_path):
    """Asked without libtvm_ffi, and of it."""
    program = tmp_path / "types.c"
    program.write_text(f'''#include <stdio.h>
#include "{ABI}"
int main(void) {{
  for (int i = 0; i < 79; ++i) {{
    if (i == 13) i = 64;
    const TVMFFITypeInfo* t = TVMFFIGetTypeInfo(i);
    printf("%d %d %d %.*s", i, t->type_index, t->type_depth, (int)t->type_key.size, t->type_key.data);
    for (int a = 0; a < t->type_depth; ++a) printf(" < %d", t->type_ancestors[a]->type_index);
    puts("");
  }}
}}''')
    libtutti = pathlib.Path(os.environ["PYTHONPATH"].split(":")[0]).parent / "libtutti.so"
    ours = compile_with(["gcc"], program, tmp_path / "ours", str(libtutti), f"-Wl,-rpath,{libtutti.parent}")
    folder = INCLUDE.parent / "lib"
    theirs = compile_with(["gcc"], program, tmp_path / "theirs", str(folder / "libtvm_ffi.so"), f"-Wl,-rpath,{folder}")
    said = [subprocess.run([program], capture_output=True, text=True, check=True).stdout for program in (ours, theirs)]
    assert said[0] == said[1] and len(said[0].splitlines()) == 28
