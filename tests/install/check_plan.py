"""check_plan.py BUILD_DIR: what `meson install` will install where, and what pkg-config says of it. Nothing is installed."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig

build = pathlib.Path(sys.argv[1])


def info(name):
    return json.loads((build / "meson-info" / f"intro-{name}.json").read_text())


def pkg_config(folder, *words):
    """With no other package in sight: a user needs none to compile and link."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PKG_CONFIG")}
    command = ["pkg-config", "--print-errors", *words, "tutti"]
    done = subprocess.run(command, env=environment | {"PKG_CONFIG_LIBDIR": str(build / folder)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


options = {option["name"]: option["value"] for option in info("buildoptions")}
installed = [pathlib.Path(path) for path in info("installed").values()]

flags = pkg_config("meson-private", "--cflags", "--libs")
assert "-ltutti" in flags and "-std=c++20" in flags, flags
not_installed = pkg_config("meson-uninstalled", "--cflags")
headers = [flag[2:] for flag in not_installed if flag.startswith("-I")]
assert any((pathlib.Path(folder) / "tutti" / "session.h").is_file() for folder in headers), f"no headers in {headers}"

packages = {path.parent for path in installed if path.name == "__init__.py" and path.parent.name == "tutti"}
debian_finds = "deb_system" in sysconfig.get_scheme_names() and options["prefix"] in ("/usr", "/usr/local")
if packages and debian_finds and sys.prefix == sys.base_prefix:
    [package] = packages
    searched = subprocess.run([sys.executable, "-I", "-c", "import sys; print(*sys.path, sep='\\n')"], capture_output=True, text=True, check=True)
    assert str(package.parent) in searched.stdout.split(), f"{sys.executable} does not look into {package.parent}, but into\n{searched.stdout}"
