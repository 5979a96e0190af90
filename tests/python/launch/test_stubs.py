"""The stubs name what the extension has, with its parameters."""

import ast
import inspect
import os
import re

import tutti
from tutti import _core, worker


def stubs(name):
    with open(os.path.join(os.path.dirname(tutti.__file__), name)) as file:
        return ast.parse(file.read())


def public(names):
    return {name for name in names if not name.startswith("__") or name in ("__call__", "__getitem__", "__len__", "__dlpack__", "__dlpack_device__")}


def test_names():
    tree = stubs("_core.pyi")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert public(dir(_core)) - {"worker"} == set(classes) | functions
    for name, node in classes.items():
        here = vars(getattr(_core, name))
        stated = {item.name for item in node.body if isinstance(item, ast.FunctionDef)} | {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
        assert public(stated) == public(here) - {"_pybind11_conduit_v1_"}, name
    assert {node.name for node in stubs("worker.pyi").body if isinstance(node, ast.FunctionDef)} == public(dir(worker))


def test_parameters():
    for node in stubs("_core.pyi").body:
        if not isinstance(node, ast.ClassDef):
            continue
        for method in node.body:
            if not isinstance(method, ast.FunctionDef) or method.name.startswith("__"):
                continue
            thing = getattr(getattr(_core, node.name), method.name)
            if inspect.isfunction(thing):
                assert list(inspect.signature(thing).parameters)[1:] == [arg.arg for arg in method.args.args[1:]]
                continue
            shown = thing.__doc__.splitlines()[0]
            names = [arg.arg for arg in method.args.args[1:]]
            told = re.findall(r"(\w+): ", re.sub(r"\[[^\]]*\]", "", shown[shown.index("(") + 1:shown.rindex("->")]))[1:]
            assert [name for name in told if name != "args"] == names, f"{node.name}.{method.name}: {shown}"


def test_docstrings():
    for name in public(dir(_core)):
        thing = getattr(_core, name)
        if isinstance(thing, type) and name != "worker":
            assert thing.__doc__, name
