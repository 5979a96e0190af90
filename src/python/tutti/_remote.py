"""What a session asks its workers' Python to do: import a module, take a function that the controller ships."""

import ast
import dis
import functools
import importlib
import importlib.util
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


def _parse(source, first_line=1):
    """A function's definition alone: without decorators and annotations, whose names workers may not have."""
    indented = source[0].isspace()
    tree = ast.parse("if 1:\n" + source if indented else source)
    definition = tree.body[0].body[0] if indented else tree.body[0]
    ast.increment_lineno(definition, first_line - 1 - indented)
    definition.decorator_list, definition.returns = [], None
    for node in ast.walk(definition.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    return definition


def _source_of(function):
    """[imports, source, file, line, name]: enough to make a plain function again."""
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
        arguments = _parse(source).args
    except OSError as error:
        raise UsageError(f"define: the source of {function.__qualname__} can't be had ({error}); install cloudpickle") from None
    if any(isinstance(node, ast.Name) for value in arguments.defaults + arguments.kw_defaults if value for node in ast.walk(value)):
        raise UsageError(f"define: a default of {function.__qualname__} has a name of its module, which workers do not have; write the value, or install cloudpickle")
    code = function.__code__
    return [imports, source, code.co_filename, code.co_firstlineno, function.__name__]


def pack(function):
    if not callable(function):
        raise UsageError(f"define: {function!r} can't be called")
    try:
        import cloudpickle
    except ImportError:
        return b"s" + json.dumps(_source_of(function)).encode()
    try:
        return b"p" + cloudpickle.dumps(function)
    except Exception as error:
        raise UsageError(f"define: {getattr(function, '__qualname__', function)!r} can't be shipped: {error}; what stays with the controller (sessions, DRefs, "
                         "open files) can't be part of it: pass DRefs as arguments") from error


def unpack(payload):
    """On a worker."""
    if payload[:1] == b"p":
        import pickle

        function = pickle.loads(payload[1:])
        return function if inspect.isfunction(function) else functools.partial(function)
    imports, source, file, line, name = json.loads(payload[1:])
    names = {}
    for alias, module in imports:
        exec(f"import {module} as {alias}", names)
    exec(compile(ast.Module([_parse(source, line)], []), file, "exec"), names)
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
    if self.is_recording:
        raise UsageError("define can't be recorded: call it before the recording")
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


def library_of_tvm(package, file):
    """Where this Python's `package` (tvm, tvm_ffi) has its library, which modules of TVM need; "" if there is none. Nothing is imported."""
    try:
        spec = importlib.util.find_spec(package)
    except Exception:  # somebody's stand-in for it
        spec = None
    library = os.path.join(os.path.dirname(spec.origin), "lib", file) if spec and spec.origin else ""
    return library if os.path.exists(library) else ""


_register_global_func("runtime.disco._library_of_tvm", library_of_tvm, True)
