"""The stubs name what the extension has, with its parameters."""

import ast
import inspect
import os

import tutti
from tutti import _core, distributed, worker

STUBS = [(_core, "_core.pyi", {"distributed", "worker"}), (distributed, "distributed.pyi", {"DTensorType", "PlacementSpecKind"})]  # module, stub, what is not looked at

def stubs(name):
    with open(os.path.join(os.path.dirname(tutti.__file__), name)) as file:
        return ast.parse(file.read())


def public(names):
    return {name for name in names if not name.startswith("__") or name in ("__call__", "__getitem__", "__len__", "__dlpack__", "__dlpack_device__")}


def test_names():
    for module, file, others in STUBS:
        tree = stubs(file)
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        here = {name for name in public(dir(module)) if module is _core or not name.startswith("_")}
        assert here - others == (set(classes) | functions) - others
        for name, node in classes.items():
            if name in others:
                continue
            here = vars(getattr(module, name))
            stated = {item.name for item in node.body if isinstance(item, ast.FunctionDef)} | {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
            assert public(stated) == public(here) - {"_pybind11_conduit_v1_"}, name
    assert {node.name for node in stubs("worker.pyi").body if isinstance(node, ast.FunctionDef)} == public(dir(worker))


def parameters(function):
    """(name, default) of a stub's function, but for *args and **kwargs."""
    names = [arg.arg for arg in function.args.posonlyargs + function.args.args]
    defaults = [ast.literal_eval(value) for value in function.args.defaults]
    return list(zip(names, [inspect.Parameter.empty] * (len(names) - len(defaults)) + defaults))


def test_parameters():
    """As inspect.signature says, which editors and help() ask."""
    for module, node in [(module, node) for module, file, _ in STUBS for node in stubs(file).body]:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            told = inspect.signature(getattr(module, node.name)).parameters.values()
            assert [(each.name, each.default) for each in told] == parameters(node), node.name
        if not isinstance(node, ast.ClassDef):
            continue
        for method in node.body:
            if not isinstance(method, ast.FunctionDef) or method.name.startswith("__"):
                continue
            told = inspect.signature(getattr(getattr(module, node.name), method.name)).parameters.values()
            assert [(each.name, each.default) for each in told if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)] == parameters(method), f"{node.name}.{method.name}"


def test_signatures_of_bound_methods():
    with tutti.ThreadedSession(1) as session:
        assert str(inspect.signature(session.empty)) == "(shape, dtype, device=None, worker0_only=False, in_group=True)"
        assert str(inspect.signature(session.call_packed)) == "(func, *args)"
        assert session.empty.__doc__.startswith("An uninitialised array")
        assert str(inspect.signature(session.empty((1,), "int8").debug_get_from_remote)) == "(worker_id, timeout=None)"
    assert str(inspect.signature(tutti.worker.id)) == "()"
    assert str(inspect.signature(tutti.DModule)) == str(inspect.signature(tutti.DPackedFunc)) == "(dref, session=None)"


def test_docstrings():
    for name in public(dir(_core)):
        thing = getattr(_core, name)
        if isinstance(thing, type) and name != "worker":
            assert thing.__doc__, name
