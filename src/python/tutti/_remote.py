"""What a session asks its workers' Python to do: import a module, take a function that the controller ships."""

import ast
import dis
import functools
import importlib
import inspect
import json
import os
import sys
import types

from ._core import DPackedFunc, _register_global_func
from ._errors import UsageError


def _names_in(code):
    """Globals that it reads, also in functions inside it."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def _source_of(function):
    """[imports, definition, name]: enough to make a plain function again."""
    if not inspect.isfunction(function) or function.__name__ == "<lambda>" or function.__closure__:
        raise UsageError(f"define: {function!r} is no plain function; with cloudpickle (apt-get install python3-cloudpickle) lambdas and closures can be "
                         "shipped, too")
    imports, missing = [], []
    for name in sorted(_names_in(function.__code__) & set(function.__globals__)):
        value = function.__globals__[name]
        if isinstance(value, types.ModuleType):
            imports.append([name, value.__name__])
        elif value is not function:
            missing.append(name)
    if missing:
        raise UsageError(f"define: {function.__qualname__} uses {', '.join(missing)} of its module, which workers do not have; pass them as arguments, or install "
                         "cloudpickle")
    try:
        source = inspect.getsource(function)
        definition = ast.parse("if 1:\n" + source).body[0].body[0] if source[0].isspace() else ast.parse(source).body[0]
    except OSError as error:
        raise UsageError(f"define: the source of {function.__qualname__} can't be had ({error}); install cloudpickle") from None
    arguments = definition.args
    if any(isinstance(node, ast.Name) for value in arguments.defaults + arguments.kw_defaults if value for node in ast.walk(value)):
        raise UsageError(f"define: a default of {function.__qualname__} has a name of its module, which workers do not have; write the value, or install cloudpickle")
    definition.decorator_list, definition.returns = [], None
    for node in ast.walk(arguments):
        if isinstance(node, ast.arg):
            node.annotation = None
    return [imports, ast.unparse(definition), function.__name__]


def pack(function):
    if not callable(function):
        raise UsageError(f"define: {function!r} can't be called")
    try:
        import cloudpickle
    except ImportError:
        return b"s" + json.dumps(_source_of(function)).encode()
    return b"p" + cloudpickle.dumps(function)


def unpack(payload):
    """On a worker."""
    if payload[:1] == b"p":
        import pickle

        function = pickle.loads(payload[1:])
        return function if inspect.isfunction(function) else functools.partial(function)
    imports, definition, name = json.loads(payload[1:])
    names = {}
    for alias, module in imports:
        exec(f"import {module} as {alias}", names)
    exec(compile(definition, f"<{name}, shipped by the controller>", "exec"), names)
    return names[name]


def define(self, function):
    """Ships a function of the controller to every worker and returns it as a DPackedFunc. Also as a decorator:

    >>> @session.define
    ... def scale(x, k):
    ...     x.numpy()[:] *= k
    >>> scale(x, 2.0)

    A plain function goes as its source, with the modules that it uses; with cloudpickle installed (on the workers' machines as well) lambdas,
    closures and functions of other functions go, too. Workers run what they are sent: this is never done unasked.

    Raises UsageError (a ValueError) if the function can't be shipped.
    """
    return DPackedFunc(self._get_cached_method("tutti.python.define")(pack(function)))


def import_module(name, paths=()):
    """On a worker. `paths`: a Python controller's, to be searched after our own."""
    for path in paths:
        path = path or os.getcwd()
        if path not in sys.path:
            sys.path.append(path)
    importlib.import_module(name)


_register_global_func("tutti.python.define", unpack, True)
_register_global_func("runtime.disco._import_python_module", import_module, True)
