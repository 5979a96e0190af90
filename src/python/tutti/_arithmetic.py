"""Arithmetic of DTensors: numpy's functions of them are called on each worker with its own parts, by numpy, or by cupy on GPUs. Operands that do not lie as
the operation needs it are redistributed first (_propagation.py). No call waits."""

import contextlib
import functools
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

def _np():
    import numpy  # not when tutti is imported
    return numpy


_NO_STREAM = contextlib.nullcontext()


def _module_of(tensor):
    """numpy, or what stands for it where the tensor lies; how it sees a tensor; and its stream."""
    if tensor.__dlpack_device__()[0] == 1:  # kDLCPU
        return _np(), Tensor.numpy, _NO_STREAM
    try:
        import cupy
    except ImportError as error:
        raise UsageError(f"worker {worker.id()}: arithmetic of tensors on {tensor.device} needs cupy there ({error}); or use session.shard_map") from None
    return cupy, cupy.from_dlpack, cupy.cuda.ExternalStream(worker.stream())


def _common(shapes):
    return shapes[0] if all(each == shapes[0] for each in shapes) else _np().broadcast_shapes(*shapes)


def _scalar(given, np):
    """What _Number.value has made."""
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
    np = _np()
    *operands, out = operands if is_in_place else (*operands, None)
    tensors = [each for each in operands if isinstance(each, Tensor)]
    xp, view, stream = _module_of(tensors[0])
    with stream:
        arrays = [view(each) if isinstance(each, Tensor) else _scalar(each, np) for each in operands]
        shapes = [each.shape for each in arrays if isinstance(each, xp.ndarray)]
        if kind == "matmul":
            a, b = shapes
            shape = _common([a[:-2], b[:-2]]) + a[-2:-1] + (b[-1:] if len(b) > 1 else ())
        elif kind == "reduce":
            keepdims, axes = options[0], tuple(options[1:])
            shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(shapes[0]) if keepdims or axis not in axes)
        else:
            shape = _common(shapes)
        if out is None:
            out = empty(shape, dtype, tensors[0].device)
        result = view(out)
        if kind == "ufunc":  # no array without axes: some numpys take the dtype of such ones from their value
            arrays = [each.reshape(1) if isinstance(each, xp.ndarray) and each.ndim == 0 else each for each in arrays]
            getattr(xp, name)(*arrays, out=result if shape else result.reshape(1))
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

def _numpy_dtype(info, name):
    dtype = info.tensor_sinfo.dtype
    try:
        return _np().dtype(str(dtype))
    except TypeError:
        raise UsageError(f"{name}: numpy has no {dtype}; use session.shard_map with a function of a library that has it") from None


class _Number:
    """A number among the operands. As Python's own or numpy's it compares by type, too: both say what the result's dtype is."""

    def __init__(self, number, name):
        np = _np()
        if isinstance(number, np.ndarray) and number.ndim == 0:
            number = number[()]
        if not isinstance(number, (bool, int, float, complex, np.generic)):
            what = f"an array of shape {number.shape}" if isinstance(number, np.ndarray) else type(number).__name__
            raise UsageError(f"{name}: expected DTensors and numbers, got {what}; session.distribute makes a DTensor of an array")
        if isinstance(number, np.generic) and (number.dtype.kind not in "biufc" or number.dtype.itemsize > (16 if number.dtype.kind == "c" else 8)):
            raise UsageError(f"{name}: a number of dtype {number.dtype}")
        self.number, self._key = number, (type(number), number)

    def __hash__(self):
        return hash(self._key)

    def __eq__(self, other):
        return isinstance(other, _Number) and self._key == other._key

    def value(self):
        """What travels: Python's real numbers as they are, others with their type's name."""
        plain = self.number.item() if isinstance(self.number, _np().generic) else self.number
        if plain is self.number and not isinstance(plain, complex):
            return plain
        name = "complex" if plain is self.number else self.number.dtype.name
        return [name, plain.real, plain.imag] if isinstance(plain, complex) else [name, plain]


def _operands(inputs, name):
    return tuple(each.info if isinstance(each, DTensor) else _Number(each, name) for each in inputs)


def _is_tensor(operand):
    return isinstance(operand, DTensorStructInfo)


def _plan(kind, name, operands, labels, shape, result_labels, dtype, joint=(), contraction="sum", options=(), out=None):
    """What a call does: the head of the worker function's arguments; of each tensor its placement, None if it lies so already; the result's
    DTensorStructInfo. labels: of each tensor."""
    infos = [each for each in operands if _is_tensor(each)]
    mesh, result = infos[0].device_mesh, TensorStructInfo(shape, dtype.name)
    for each in [*infos[1:], *([out] if out else [])]:
        if each.device_mesh != mesh:
            raise UsageError(f"{name}: one tensor lies on {mesh}, another one on {each.device_mesh}; redistribute one of them")
    if any(each.tensor_sinfo.dtype != result.dtype for each in [*infos, *([out] if out else [])]):
        joint = ()  # parts would be converted one by one
    if out:
        written = out.tensor_sinfo
        if written.shape != result.shape:
            raise UsageError(f"{name}: the result has shape {tuple(shape)}, and is to be written to a tensor of shape {tuple(written.shape)}")
        if not _np().can_cast(dtype, str(written.dtype), "same_kind"):
            raise UsageError(f"{name}: the result has dtype {dtype}, and is to be written to a tensor of {written.dtype}; use astype")
    try:
        placements, placement = propagate(tuple(infos), tuple(labels), result, tuple(result_labels), frozenset(joint), contraction, out.placement if out else None)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    wanted = [None if info.placement == each else each for info, each in zip(infos, placements)]
    return [kind, name, list(options), dtype.name, bool(out)], wanted, out or DTensorStructInfo(result, mesh, placement)


def _run(plan, operands, inputs, out=None):
    head, wanted, info = plan
    placements = iter(wanted)
    values = []
    for operand, given in zip(operands, inputs):
        placement = next(placements) if _is_tensor(operand) else None
        values.append(operand.value() if not _is_tensor(operand) else given if placement is None else given.redistribute(placement))
    if out is None:
        return map_parts(_FUNCTION, [*head, *values], info)
    map_parts(_FUNCTION, [*head, *values, out], info)
    return out


@functools.lru_cache(maxsize=4096)
def _elementwise(ufunc, operands, out):
    np, name = _np(), ufunc.__name__
    if ufunc.nout != 1 or getattr(np, name, None) is not ufunc:
        raise UsageError(f"{name}: of DTensors only numpy's own functions with one result can be had; use session.shard_map")
    infos = [each for each in operands if _is_tensor(each)]
    if not infos:
        raise UsageError(f"{name}: no operand is a DTensor, but the result is to be written to one")
    shape, labels = broadcast([each.tensor_sinfo.shape for each in infos])
    with np.errstate(all="ignore"):
        dtype = ufunc(*[np.empty(0, _numpy_dtype(each, name)) if _is_tensor(each) else each.number for each in operands]).dtype
    joint = _JOINT.get(name, ()) if len(infos) == len(operands) else ()
    numbers = [each.number for each in operands if not _is_tensor(each)]
    if len(numbers) == 1 and (name == "multiply" or (name in ("divide", "true_divide") and _is_tensor(operands[0]))):
        if np.isfinite(numbers[0]) and (name == "multiply" or numbers[0] != 0):  # else other terms of the sum than the value's make it NaN
            joint = {"sum", "avg"}
    return _plan("ufunc", name, operands, labels, shape, range(len(shape)), dtype, joint, out=out)


@functools.lru_cache(maxsize=4096)
def _matmul(operands, out):
    np = _np()
    for each in operands:
        if not _is_tensor(each):
            raise UsageError(f"matmul: expected two DTensors, got {each.number!r}")
        if not each.tensor_sinfo.shape:
            raise UsageError("matmul: a tensor without axes; use *")
    a, b = (tuple(each.tensor_sinfo.shape) for each in operands)
    k = a[-1], b[-2] if len(b) > 1 else b[0]
    if k[0] != k[1]:
        raise UsageError(f"matmul: shapes {a} and {b} do not fit: {k[0]} columns, {k[1]} rows")
    batch, (of_a, of_b) = broadcast([a[:-2], b[:-2]])
    rows, columns = ("m",) * (len(a) > 1), ("n",) * (len(b) > 1)
    shape = batch + a[-2:-1] + (b[-1:] if len(b) > 1 else ())
    dtype = np.matmul(*[np.empty((0, 0), _numpy_dtype(each, "matmul")) for each in operands]).dtype
    labels = (of_a + rows + ("k",), of_b + ("k",) + columns)
    return _plan("matmul", "matmul", operands, labels, shape, tuple(range(len(batch))) + rows + columns, dtype, out=out)


def _axes(axis, ndim, name):
    axes = tuple(range(ndim)) if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(each.__index__() + (ndim if each < 0 else 0) for each in axes)
    if any(not 0 <= each < ndim for each in axes) or len(set(axes)) != len(axes):
        raise UsageError(f"{name}: axis {axis} of a tensor of {ndim} axes")
    return axes


@functools.lru_cache(maxsize=4096)
def _reduction(info, name, axes, dtype, keepdims):
    np, given, extents = _np(), _numpy_dtype(info, name), info.tensor_sinfo.shape
    if name in ("any", "all"):
        result = np.dtype(bool)
    elif name in ("max", "min"):
        if given.kind == "c":
            raise UsageError(f"{name}: complex numbers have no order")
        if any(extents[each] == 0 for each in axes):
            raise UsageError(f"{name}: of no elements: the shape is {tuple(extents)}")
        result = given
    else:
        result = getattr(np, name)(np.ones(1, given), dtype=dtype).dtype
    how = {"any": "max", "all": "min"}.get(name, name)
    labels = tuple(range(len(extents)))
    kept = [each for each in labels if keepdims or each not in axes]
    shape = tuple(1 if each in axes else extents[each] for each in kept)
    result_labels = [None if each in axes else each for each in kept]
    return _plan("reduce", name, (info,), [labels], shape, result_labels, result, {how}, how, [keepdims, *axes])


def _reduce(tensor, name, axis, dtype, keepdims, out):
    if out is not None:
        raise UsageError(f"{name}: DTensors are not reduced into another one (out=)")
    info = tensor.info
    plan = _reduction(info, name, _axes(axis, tensor.ndim, name), None if dtype is None else _np().dtype(dtype), bool(keepdims))
    return _run(plan, [info], [tensor])


@functools.lru_cache(maxsize=4096)
def _cast(info, dtype):
    labels = tuple(range(len(info.tensor_sinfo.shape)))
    return _plan("astype", "astype", (info,), [labels], info.tensor_sinfo.shape, labels, dtype)


def _array_ufunc(self, ufunc, method, *inputs, out=(None,), **options):
    name = ufunc.__name__
    if options.get("where", True) is True:
        options.pop("where", None)
    if len(out) != 1 or not (out[0] is None or isinstance(out[0], DTensor)):
        raise UsageError(f"{name}: expected a DTensor to write to, got {type(out[0]).__name__}")
    written = None if out[0] is None else out[0].info
    if method == "reduce" and name in _REDUCTIONS and isinstance(inputs[0], DTensor):
        given = dict(zip(("axis", "dtype", "out", "keepdims"), inputs[1:]), **options)
        keepdims, axis, dtype = given.pop("keepdims", False), given.pop("axis", 0), given.pop("dtype", None)
        if not given:
            return _reduce(inputs[0], _REDUCTIONS[name], axis, dtype, keepdims, out[0])
    elif method == "__call__" and not options:
        if name == "matmul":
            operands = _operands(inputs, name)
            return _run(_matmul(operands, written), operands, inputs, out[0])
        if ufunc.signature is None:
            operands = _operands(inputs, name)
            return _run(_elementwise(ufunc, operands, written), operands, inputs, out[0])
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
        given = _numpy_dtype(self.info, "mean") if dtype is None else _np().dtype(dtype)
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
        wanted = _np().dtype(dtype if isinstance(dtype, type) else str(dtype))
        return self if _numpy_dtype(self.info, "astype") == wanted else _run(_cast(self.info, wanted), [self.info], [self])

    def item(self, timeout=None):
        """The one element, as a number. Synchronising."""
        return self.full(timeout).numpy().item()

_BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder", "pow": "power",
           "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift"}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


def _is_number(object):
    np = _np()
    return isinstance(object, (bool, int, float, complex, np.generic)) or (isinstance(object, np.ndarray) and object.ndim == 0)


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
