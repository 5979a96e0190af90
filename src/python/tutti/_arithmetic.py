"""Arithmetic of DTensors: numpy's functions of them are called on each worker with its own parts, by numpy, or by cupy on GPUs. Operands that do not lie as
the operation needs it are redistributed first (_propagation.py). No call waits."""

import math

from . import worker
from ._core import Tensor, _register_global_func, empty
from ._core.distributed import DTensor, DTensorStructInfo, TensorStructInfo, map_parts
from ._errors import UsageError
from ._propagation import broadcast, propagate

_FUNCTION = "tutti.distributed.arithmetic"

# op(sum of a, sum of b) = sum of op(a, b)
_JOINT = {"add": {"sum", "avg"}, "subtract": {"sum", "avg"}, "negative": {"sum", "avg"}, "positive": {"sum", "avg", "prod", "min", "max"},
          "maximum": {"max"}, "minimum": {"min"}}
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_or": "any", "logical_and": "all"}


# ---- on the workers

def _module_of(tensor):
    """numpy, or what stands for it where the tensor lies; how it sees a tensor; and its stream."""
    import contextlib

    import numpy
    if str(tensor.device).startswith("cpu"):
        return numpy, Tensor.numpy, contextlib.nullcontext()
    try:
        import cupy
    except ImportError as error:
        raise UsageError(f"worker {worker.id()}: arithmetic of tensors on {tensor.device} needs cupy there ({error}); or use session.shard_map") from None
    return cupy, cupy.from_dlpack, cupy.cuda.ExternalStream(worker.stream())


def _scalar(given, np):
    """What _encoded has made."""
    if not isinstance(given, list):
        return given
    kind, *parts = given
    number = complex(*parts) if len(parts) == 2 else parts[0]
    return number if kind == "complex" else np.dtype(kind).type(number)


def _identity(name, dtype, np):
    """Of max and min: what a part without elements adds."""
    if dtype.kind == "b":
        return name == "min"
    least, most = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return least if name == "max" else most


def _on_worker(kind, name, options, dtype, is_in_place, *operands):
    """kind: "ufunc", "matmul", "reduce" (options: keepdims, axes) or "astype". is_in_place: the last operand is the result."""
    import numpy as np
    xp, view, stream = _module_of(next(each for each in operands if isinstance(each, Tensor)))
    *operands, out = operands if is_in_place else (*operands, None)
    with stream:
        arrays = [view(each) if isinstance(each, Tensor) else _scalar(each, np) for each in operands]
        if kind == "ufunc":  # not without axes: some numpys take the dtype of such ones from their value
            arrays = [each.reshape(1) if isinstance(each, xp.ndarray) and each.ndim == 0 else each for each in arrays]
        shapes = [each.shape for each in arrays if isinstance(each, xp.ndarray)]
        if kind == "matmul":
            (a, b), ends = shapes, (shapes[0][-2:-1], shapes[1][-1:] if len(shapes[1]) > 1 else ())
            shape = np.broadcast_shapes(a[:-2], b[:-2]) + ends[0] + ends[1]
        elif kind == "reduce":
            keepdims, axes = options[0], tuple(options[1:])
            shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(shapes[0]) if keepdims or axis not in axes)
        else:
            shape = np.broadcast_shapes(*shapes)
            if all(each.ndim == 0 for each in operands if isinstance(each, Tensor)):
                shape = ()
        if out is None:
            out = empty(shape, dtype, next(each for each in operands if isinstance(each, Tensor)).device)
        result = view(out)
        if kind == "ufunc":
            getattr(xp, name)(*arrays, out=result.reshape(1) if result.ndim == 0 else result)
        elif kind == "matmul":
            xp.matmul(*arrays, out=result)
        elif kind == "astype":
            xp.copyto(result, arrays[0], casting="unsafe")
        elif name in ("max", "min") and arrays[0].size == 0:
            result[...] = _identity(name, result.dtype, np)
        else:
            how = {"dtype": dtype} if name in ("sum", "prod") else {}
            getattr(xp, name)(arrays[0], axis=axes, out=result, keepdims=bool(keepdims), **how)
    return out


_register_global_func(_FUNCTION, _on_worker, True)


# ---- on the controller

def _np():
    import numpy  # not when tutti is imported
    return numpy


def _numpy_dtype(tensor, name):
    try:
        return _np().dtype(str(tensor.dtype))
    except TypeError:
        raise UsageError(f"{name}: numpy has no {tensor.dtype}; use astype, or session.shard_map with a function of a library that has it") from None


def _encoded(number, name):
    """A number as a Value: Python's own as it is, numpy's with its dtype."""
    np = _np()
    if isinstance(number, np.ndarray) and number.ndim == 0:
        number = number[()]
    if isinstance(number, np.generic):
        if number.dtype.kind not in "biufc" or number.dtype.itemsize > (16 if number.dtype.kind == "c" else 8):
            raise UsageError(f"{name}: a number of dtype {number.dtype}")
        value = number.item()
        return [number.dtype.name, value.real, value.imag] if isinstance(value, complex) else [number.dtype.name, value]
    if isinstance(number, complex):
        return ["complex", number.real, number.imag]
    if isinstance(number, (bool, int, float)):
        return number
    what = f"an array of shape {number.shape}" if isinstance(number, np.ndarray) else type(number).__name__
    raise UsageError(f"{name}: expected DTensors and numbers, got {what}; session.distribute makes a DTensor of an array")


def _is_number(object):
    np = _np()
    return isinstance(object, (bool, int, float, complex, np.generic)) or (isinstance(object, np.ndarray) and object.ndim == 0)


def _run(kind, name, operands, labels, shape, result_labels, dtype, joint=(), contraction="sum", options=(), out=None):
    """operands: DTensors and numbers; labels: of each DTensor."""
    tensors = [each for each in operands if isinstance(each, DTensor)]
    mesh = tensors[0].mesh
    for each in [*tensors[1:], *([] if out is None else [out])]:
        if each.mesh != mesh:
            raise UsageError(f"{name}: one tensor lies on {mesh}, another one on {each.mesh}; redistribute one of them")
    result = TensorStructInfo(shape, dtype.name)
    if any(each.dtype != result.dtype for each in [*tensors, *([] if out is None else [out])]):
        joint = ()  # parts would be converted one by one
    target = None
    if out is not None:
        if out.shape != shape:
            raise UsageError(f"{name}: the result has shape {tuple(shape)}, and is to be written to a tensor of shape {out.shape}")
        if not _np().can_cast(dtype, str(out.dtype), "same_kind"):
            raise UsageError(f"{name}: the result has dtype {dtype}, and is to be written to a tensor of {out.dtype}; use astype")
        target = out.placement
    try:
        placements, placement = propagate(tuple(each.info for each in tensors), tuple(labels), result, tuple(result_labels), frozenset(joint), contraction, target)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    placed = iter([each if each.placement == wanted else each.redistribute(wanted) for each, wanted in zip(tensors, placements)])
    values = [next(placed) if isinstance(each, DTensor) else _encoded(each, name) for each in operands]
    header = [kind, name, list(options), str(result.dtype), out is not None]
    if out is None:
        return map_parts(_FUNCTION, [*header, *values], DTensorStructInfo(result, mesh, placement))
    map_parts(_FUNCTION, [*header, *values, out], out.info)
    return out


def _elementwise(ufunc, inputs, out):
    np, name = _np(), ufunc.__name__
    if ufunc.nout != 1 or getattr(np, name, None) is not ufunc:
        raise UsageError(f"{name}: of DTensors only numpy's own functions with one result can be had; use session.shard_map")
    for each in inputs:
        if not isinstance(each, DTensor):
            _encoded(each, name)
    tensors = [each for each in inputs if isinstance(each, DTensor)]
    shape, labels = broadcast([each.shape for each in tensors])
    with np.errstate(all="ignore"):
        samples = [np.empty(0, _numpy_dtype(each, name)) if isinstance(each, DTensor) else each for each in inputs]
        dtype = ufunc(*samples).dtype
    joint = _JOINT.get(name, ()) if len(tensors) == len(inputs) else ()
    numbers = [each for each in inputs if not isinstance(each, DTensor)]
    if len(numbers) == 1 and (name == "multiply" or (name in ("divide", "true_divide") and isinstance(inputs[0], DTensor))):
        if np.isfinite(numbers[0]) and (name == "multiply" or numbers[0] != 0):  # else other terms of the sum than the value's make it NaN
            joint = {"sum", "avg"}
    return _run("ufunc", name, inputs, labels, shape, range(len(shape)), dtype, joint, out=out)


def _matmul(a, b, out):
    np = _np()
    for each in (a, b):
        if not isinstance(each, DTensor):
            raise UsageError(f"matmul: expected two DTensors, got {type(each).__name__}; session.distribute makes one of an array")
        if each.ndim == 0:
            raise UsageError("matmul: a tensor without axes; use *")
    k = a.shape[-1], b.shape[-2] if b.ndim > 1 else b.shape[0]
    if k[0] != k[1]:
        raise UsageError(f"matmul: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit: {k[0]} columns, {k[1]} rows")
    if a.ndim > 2 or b.ndim > 2:
        batch, (of_a, of_b) = broadcast([a.shape[:-2], b.shape[:-2]])
    else:
        batch, of_a, of_b = (), (), ()
    rows, columns = ("m",) * (a.ndim > 1), ("n",) * (b.ndim > 1)
    shape = batch + tuple(a.shape[-2:-1]) + (tuple(b.shape[-1:]) if b.ndim > 1 else ())
    dtype = np.matmul(np.ones((1, 1), _numpy_dtype(a, "matmul")), np.ones((1, 1), _numpy_dtype(b, "matmul"))).dtype
    labels = (of_a + rows + ("k",), of_b + ("k",) + columns)
    return _run("matmul", "matmul", [a, b], labels, shape, tuple(range(len(batch))) + rows + columns, dtype, out=out)


def _axes(axis, ndim, name):
    axes = tuple(range(ndim)) if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(each.__index__() + (ndim if each < 0 else 0) for each in axes)
    if any(not 0 <= each < ndim for each in axes) or len(set(axes)) != len(axes):
        raise UsageError(f"{name}: axis {axis} of a tensor of {ndim} axes")
    return axes


def _reduce(self, name, axis, dtype, keepdims, out=None):
    np = _np()
    if out is not None:
        raise UsageError(f"{name}: DTensors are not reduced into another one (out=)")
    axes, given = _axes(axis, self.ndim, name), _numpy_dtype(self, name)
    if name in ("any", "all"):
        result = np.dtype(bool)
    elif name in ("max", "min"):
        if given.kind == "c":
            raise UsageError(f"{name}: complex numbers have no order")
        if any(self.shape[each] == 0 for each in axes):
            raise UsageError(f"{name}: of no elements: the shape is {tuple(self.shape)}")
        result = given
    else:
        result = getattr(np, name)(np.ones(1, given), dtype=dtype).dtype
    how = {"any": "max", "all": "min"}.get(name, name)
    labels = tuple(range(self.ndim))
    kept = tuple(each for each in labels if each not in axes)
    shape = tuple(1 if each in axes else self.shape[each] for each in labels if keepdims or each in kept)
    result_labels = tuple(None if each in axes else each for each in labels if keepdims or each in kept)
    return _run("reduce", name, [self], [labels], shape, result_labels, result, {how}, how, [bool(keepdims), *axes])


def _array_ufunc(self, ufunc, method, *inputs, out=(None,), **options):
    name = ufunc.__name__
    if options.get("where", True) is True:
        options.pop("where", None)
    if len(out) != 1 or not (out[0] is None or isinstance(out[0], DTensor)):
        raise UsageError(f"{name}: expected a DTensor to write to, got {type(out[0]).__name__}")
    if method == "reduce" and name in _REDUCTIONS:
        given = dict(zip(("axis", "dtype", "out", "keepdims"), inputs[1:]), **options)
        keepdims, axis, dtype = given.pop("keepdims", False), given.pop("axis", 0), given.pop("dtype", None)
        if not given and isinstance(inputs[0], DTensor):
            how = {} if dtype is None else {"dtype": dtype}
            return getattr(inputs[0], _REDUCTIONS[name])(axis=axis, keepdims=keepdims, out=out[0], **how)
    elif method == "__call__" and not options:
        if name == "matmul":
            return _matmul(*inputs, out[0])
        if ufunc.signature is None:
            return _elementwise(ufunc, inputs, out[0])
    raise UsageError(f"{name}.{method}({', '.join(options)}): not built for DTensors; use session.shard_map")


class _Arithmetic:
    """What DTensor takes from here."""

    __array_ufunc__ = _array_ufunc

    def sum(self, axis=None, dtype=None, out=None, keepdims=False):
        """The sum over axes, over all without one. What mesh dimensions cut becomes partial: nothing moves."""
        return _reduce(self, "sum", axis, dtype, keepdims, out)

    def prod(self, axis=None, dtype=None, out=None, keepdims=False):
        """The product over axes, as `sum`."""
        return _reduce(self, "prod", axis, dtype, keepdims, out)

    def max(self, axis=None, out=None, keepdims=False):
        """The largest element over axes, as `sum`. NaN if there is one."""
        return _reduce(self, "max", axis, None, keepdims, out)

    def min(self, axis=None, out=None, keepdims=False):
        """The smallest element over axes, as `sum`. NaN if there is one."""
        return _reduce(self, "min", axis, None, keepdims, out)

    def mean(self, axis=None, dtype=None, out=None, keepdims=False):
        """The mean over axes, as `sum`. Of integers in float64; of float16 it is added up in float32."""
        given = _numpy_dtype(self, "mean") if dtype is None else _np().dtype(dtype)
        added = "float64" if given.kind in "biu" else "float32" if given == "float16" else given
        total = _reduce(self, "sum", axis, added, keepdims, out) / math.prod(self.shape[each] for each in _axes(axis, self.ndim, "mean"))
        return total.astype("float16") if given == "float16" else total

    def any(self, axis=None, out=None, keepdims=False):
        """Whether an element is not 0, over axes, as `sum`."""
        return _reduce(self, "any", axis, None, keepdims, out)

    def all(self, axis=None, out=None, keepdims=False):
        """Whether no element is 0, over axes, as `sum`."""
        return _reduce(self, "all", axis, None, keepdims, out)

    def astype(self, dtype):
        """The same values in another dtype. Partial values are reduced first."""
        given, wanted = _numpy_dtype(self, "astype"), _np().dtype(str(dtype) if not isinstance(dtype, type) else dtype)
        labels = tuple(range(self.ndim))
        return self if given == wanted else _run("astype", "astype", [self], [labels], self.shape, labels, wanted)

    def transpose(self, *axes):
        """The same elements with the axes in this order; none are given: in reverse order. Parts are views; nothing moves."""
        order = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
        return self._transpose([each + (self.ndim if each < 0 else 0) for each in order or ()])

    def item(self, timeout=None):
        """The one element, as a number. Synchronising."""
        return self.full(timeout).numpy().item()

    T = property(transpose, doc="transpose()")


_BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder", "pow": "power",
           "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift"}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


def _operator(name, call):
    call.__name__ = call.__qualname__ = name
    setattr(_Arithmetic, name, call)


for _name, _ufunc in _BINARY.items():
    _operator(f"__{_name}__", lambda self, other, f=_ufunc: getattr(_np(), f)(self, other))
    _operator(f"__r{_name}__", lambda self, other, f=_ufunc: getattr(_np(), f)(other, self))
    _operator(f"__i{_name}__", lambda self, other, f=_ufunc: getattr(_np(), f)(self, other, out=(self,)))
for _name, _ufunc in _COMPARISONS.items():
    _operator(f"__{_name}__", lambda self, other, f=_ufunc: getattr(_np(), f)(self, other) if isinstance(other, DTensor) or _is_number(other) else NotImplemented)
for _name, _ufunc in _UNARY.items():
    _operator(f"__{_name}__", lambda self, f=_ufunc: getattr(_np(), f)(self))
for _name, _value in vars(_Arithmetic).items():
    if _name not in ("__dict__", "__weakref__", "__module__", "__doc__", "__hash__"):
        setattr(DTensor, _name, _value)
