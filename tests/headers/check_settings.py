#!/usr/bin/env python3
"""check_settings.py SOURCE_DIR: the variables that users may set stand in core/settings.cpp and in docs/reference.md, the same ones, and no
other source reads them from the environment."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
# read by programs that have no settings, or handed from one of our processes to the next
ELSEWHERE = {"TUTTI_PYTHON", "TUTTI_TTY", "TUTTI_GPU", "TUTTI_RESTART_COUNT", "TUTTI_DEVICES_ARE_SET"}
FOR_TESTS = {"TUTTI_MPI_MAX_COUNT"}

known = set(re.findall(r'\{"(TUTTI_[A-Z_]+)", &Settings::', (root / "src/core/settings.cpp").read_text()))
section = (root / "docs/reference.md").read_text().split("\n## Environment\n")[1].split("\n## ")[0]
told = set(re.findall(r"^\| `(TUTTI_[A-Z_]+)", section, re.MULTILINE))
wrong = [f"{name} is in core/settings.cpp, not in docs/reference.md" for name in sorted(known - told - FOR_TESTS)]
wrong += [f"{name} is in docs/reference.md, not in core/settings.cpp" for name in sorted(told - known - ELSEWHERE)]
for folder in ("src", "launcher"):
    for path in sorted((root / folder).rglob("*.cpp")):
        for name in re.findall(r'(?:env_string|env_int|getenv)\("(TUTTI_[A-Z_]+)"', path.read_text()):
            if name not in ELSEWHERE:
                wrong.append(f"{path.relative_to(root)} reads {name}: core/settings.h has it")
if len(known) < 10:
    wrong.append("core/settings.cpp has another form than this check knows")
print("\n".join(wrong) if wrong else f"{len(known)} settings, as documented")
sys.exit(bool(wrong))
