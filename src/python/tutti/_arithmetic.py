"""Arithmetic of DTensors: numpy's functions of them are called on each worker with its own parts, by numpy, or by cupy on GPUs. Operands that do not lie as
the operation needs it are redistributed first (_propagation.py). No call waits."""

import contextlib
import functools
import inspect
import math
import operator

from . import worker
from ._core import Tensor, _register_global_func, empty
from ._core.distributed import DTensor, DTensorStructInfo, TensorStructInfo, map_parts
from ._errors import UsageError
from ._propagation import broadcast, propagate

_FUNCTION = "tutti.distributed.arithmetic"

_COPIED = {"sum", "avg", "prod", "min", "max"}
# op(sum of a, sum of b) = sum of op(a, b)
_JOINT = {"add": {"sum", "avg"}, "subtract": {"sum", "avg"}, "negative": {"sum", "avg"}, "positive": _COPIED,
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
    number = complex(*parts) if len(parts) == 2 else int(parts[0]) if isinstance(parts[0], str) else parts[0]
    return number if kind in ("complex", "int") else np.dtype(kind).type(number)


def _identity(name, dtype, np):
    """Of max and min: what a part without elements adds."""
    if dtype.kind == "b":
        return name == "min"
    least, most = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return least if name == "max" else most


def _on_worker(kind, name, options, dtype, is_in_place, *operands):
    """kind: "ufunc", "matmul", "reduce" (options: keepdims, axes), "astype" or "assign". is_in_place: the last operand is the result."""
    np = _np()
    *operands, out = operands if is_in_place else (*operands, None)
    tensors = [each for each in (*operands, out) if isinstance(each, Tensor)]
    xp, view, stream = _module_of(tensors[0])
    with stream:
        arrays = [view(each) if isinstance(each, Tensor) else _scalar(each, np) for each in operands]
        shapes = [each.shape for each in arrays if isinstance(each, xp.ndarray)]
        if out is not None:
            shape = out.shape
        elif kind == "matmul":
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
        elif kind == "assign":
            value = arrays[0]
            overlaps = xp is not np and isinstance(value, xp.ndarray) and xp.may_share_memory(value, result)
            result[...] = value.copy() if overlaps else value  # numpy looks at that itself
        elif name in ("max", "min") and arrays[0].size == 0:
            result[...] = _identity(name, result.dtype, np)
        else:
            how = {"dtype": dtype} if name in ("sum", "prod") else {}
            getattr(xp, name)(arrays[0], axis=axes, out=result, keepdims=bool(keepdims), **how)
    return out


_register_global_func(_FUNCTION, _on_worker, True)


# ---- on the controller

def _dtype(given, name):
    """As numpy has it."""
    try:
        return _np().dtype(given if isinstance(given, type) else str(given))
    except TypeError:
        raise UsageError(f"{name}: numpy has no {given}; use session.shard_map with a function of a library that has it") from None


def _numpy_dtype(info, name):
    return _dtype(info.tensor_sinfo.dtype, name)


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
        name = type(plain).__name__ if plain is self.number else self.number.dtype.name
        if isinstance(plain, complex):
            return [name, plain.real, plain.imag]
        if isinstance(plain, int) and not -(2**63) <= plain < 2**63:
            return [name, str(plain)]
        return plain if plain is self.number else [name, plain]


def _operands(inputs, name):
    return tuple(each.info if isinstance(each, DTensor) else _Number(each, name) for each in inputs)


def _is_tensor(operand):
    return isinstance(operand, DTensorStructInfo)


def _plan(kind, name, operands, labels, shape, result_labels, dtype, joint=(), contraction="sum", options=(), out=None, is_put_off=False):
    """What a call does: the head of the worker function's arguments; of each tensor its placement, None if it lies so already; the result's
    DTensorStructInfo. labels: of each tensor."""
    infos = [each for each in operands if _is_tensor(each)]
    mesh, result = infos[0].device_mesh, TensorStructInfo(shape, dtype.name)
    for each in [*infos[1:], *([out] if out else [])]:
        if each.device_mesh != mesh:
            raise UsageError(f"{name}: one tensor lies on {mesh}, another one on {each.device_mesh}; redistribute one of them")
    if any(each.tensor_sinfo.dtype != result.dtype for each in [*infos, *([out] if out else [])]):
        joint = ()  # parts would be converted one by one
    if dtype.kind not in "fc":
        joint = set(joint) - {"avg"}  # those of integers are rounded
    if out:
        written = out.tensor_sinfo
        if written.shape != result.shape:
            raise UsageError(f"{name}: the result has shape {tuple(shape)}, and is to be written to a tensor of shape {tuple(written.shape)}")
        if not _np().can_cast(dtype, str(written.dtype), "same_kind"):
            raise UsageError(f"{name}: the result has dtype {dtype}, and is to be written to a tensor of {written.dtype}; use astype")
    try:
        placements, placement = propagate(tuple(infos), tuple(labels), result, tuple(result_labels), frozenset(joint), contraction, out.placement if out else None, is_put_off)
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


def _keeps_terms_small(dtype, number, is_factor):
    """Whether terms times it (or by it) become no larger: a sum of terms that overflow is no value, while the value may be one."""
    np = _np()
    with np.errstate(all="ignore"):
        size = abs(dtype.type(number))  # as it is used
    return dtype.kind in "iu" or bool(size <= 1 if is_factor else 1 <= size < np.inf)


@functools.lru_cache(maxsize=4096)
def _elementwise(ufunc, operands, out):
    np, name = _np(), ufunc.__name__
    if getattr(np, name, None) is not ufunc:
        raise UsageError(f"{name}: of DTensors only numpy's own functions with one result can be had; use session.shard_map")
    infos = [each for each in operands if _is_tensor(each)]
    if not infos:
        raise UsageError(f"{name}: no operand is a DTensor, but the result is to be written to one")
    shape, labels = broadcast([each.tensor_sinfo.shape for each in infos])
    with np.errstate(all="ignore"):
        dtype = ufunc(*[np.empty(0, _numpy_dtype(each, name)) if _is_tensor(each) else each.number for each in operands]).dtype
    if dtype.kind not in "biufc":
        raise UsageError(f"{name}: the result's dtype would be {dtype}: {' and '.join(repr(each.number) for each in operands if not _is_tensor(each))} is out of range")
    joint = _JOINT.get(name, ()) if len(infos) == len(operands) else ()
    numbers = [each.number for each in operands if not _is_tensor(each)]
    if len(numbers) == 1 and (name == "multiply" or (name in ("divide", "true_divide") and _is_tensor(operands[0]))):
        joint = {"sum", "avg"} if _keeps_terms_small(dtype, numbers[0], name == "multiply") else ()
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
    if not all(hasattr(each, "__index__") for each in axes):
        raise UsageError(f"{name}: axis: expected an int or a tuple of ints, got {axis!r}")
    axes = tuple(operator.index(each) + (ndim if each < 0 else 0) for each in axes)
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
    return _plan("reduce", name, (info,), [labels], shape, result_labels, result, {how}, how, [keepdims, *axes], is_put_off=True)


def _reduce(tensor, name, axis, dtype, keepdims, out):
    if out is not None:
        raise UsageError(f"{name}: DTensors are not reduced into another one (out=)")
    info = tensor.info
    plan = _reduction(info, name, _axes(axis, tensor.ndim, name), None if dtype is None else _dtype(dtype, name), bool(keepdims))
    return _run(plan, [info], [tensor])


@functools.lru_cache(maxsize=4096)
def _cast(info, dtype):
    labels = tuple(range(len(info.tensor_sinfo.shape)))
    return _plan("astype", "astype", (info,), [labels], info.tensor_sinfo.shape, labels, dtype, _COPIED)


def _can_hold(dtype, number):
    np = _np()
    if isinstance(number, (int, np.integer)) and dtype.kind in "iub":
        return (0 if dtype.kind == "b" else np.iinfo(dtype).min) <= number <= (1 if dtype.kind == "b" else np.iinfo(dtype).max)
    return np.can_cast(np.min_scalar_type(number), dtype, "same_kind")


def _assign(target, value):
    """x[key] = value, where x[key] is target. x[key] += 1 ends so, too: its value is another view of the same parts."""
    name, info = "[]=", target.info
    if isinstance(value, DTensor):
        extents, given = tuple(target.shape), tuple(value.shape)
        shape, labels = broadcast([given])
        if broadcast([given, extents])[0] != extents:
            raise UsageError(f"{name}: a tensor of shape {given} can't be written to one of shape {extents}")
        labels = tuple(each + len(extents) - len(shape) if shape[each] == extents[each + len(extents) - len(shape)] else None for each in range(len(shape)))
        return _run(_plan("assign", name, (value.info,), [labels], extents, tuple(range(len(extents))), _numpy_dtype(value.info, name), _COPIED, out=info), [value.info],
                    [value], target)
    number = _Number(value, name)
    if any(spec.op for spec in info.placement.dim_specs):
        raise UsageError(f"{name}: the tensor is partial: '{info.placement}'; redistribute it first")
    wanted = _numpy_dtype(info, name)
    if wanted.kind in "fc" and isinstance(number.number, int):
        number = _Number(float(number.number), name)
    if not _can_hold(wanted, number.number):
        raise UsageError(f"{name}: {value!r} can't be written to a tensor of {wanted}; use astype")
    return map_parts(_FUNCTION, ["assign", name, [], str(info.tensor_sinfo.dtype), True, number.value(), target], info)


def _array_function(self, func, types, args, kwargs):
    """numpy's functions that are methods here; the others are refused by name."""
    told, name = f"{func.__module__}.{func.__name__}", {"amax": "max", "amin": "min"}.get(func.__name__, func.__name__)
    named = {{"a_min": "min", "a_max": "max"}.get(key, key): value for key, value in kwargs.items()}
    if "a" in named:
        args = (named.pop("a"), *args)
    if args and isinstance(args[0], DTensor):
        if name in ("shape", "ndim", "size") and len(args) == 1 and not named:
            return getattr(args[0], name)
        if name == "transpose" and not (set(named) - {"axes"}):
            return args[0].transpose(*args[1:], *named.values())
        if name in _METHODS:
            try:
                call = inspect.signature(_METHODS[name]).bind(*args, **named)
            except TypeError as error:
                raise UsageError(f"{told}: {error}: not built for DTensors; use session.shard_map") from None
            return _METHODS[name](*call.args, **call.kwargs)
    raise UsageError(f"{told}: not built for DTensors; use session.shard_map, or x.full() for all of it")


def _array_ufunc(self, ufunc, method, *inputs, out=(None,), **options):
    name = ufunc.__name__
    if isinstance(options.get("where", True), (bool, _np().bool_)) and options.get("where", True):
        options.pop("where", None)
    if ufunc.nout != 1:
        raise UsageError(f"{name}: it has {ufunc.nout} results; use session.shard_map")
    if len(out) != 1 or not (out[0] is None or isinstance(out[0], DTensor)):
        raise UsageError(f"{name}: expected a DTensor to write to, got {type(out[0]).__name__}")
    written = None if out[0] is None else out[0].info
    if method == "reduce" and name in _REDUCTIONS and isinstance(inputs[0], DTensor):
        given = dict(options)
        keepdims, axis, dtype = given.pop("keepdims", False), given.pop("axis", 0), given.pop("dtype", None)
        if dtype is not None and name not in ("add", "multiply"):
            raise UsageError(f"{name}.reduce: dtype= is not built for DTensors; use astype")
        if not given and len(inputs) == 1:
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
    __array_function__ = _array_function

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
        given = _numpy_dtype(self.info, "mean") if dtype is None else _dtype(dtype, "mean")
        added = "float64" if given.kind in "biu" else "float32" if given == "float16" else given
        count = math.prod(self.shape[each] for each in _axes(axis, self.ndim, "mean"))
        mean = _reduce(self, "sum", axis, added, keepdims, out) / count
        return mean.astype(given, copy=False) if dtype is not None or given == "float16" else mean

    def any(self, axis=None, out=None, keepdims=False):
        """Whether an element is not 0, over axes, as `sum`."""
        return _reduce(self, "any", axis, None, keepdims, out)

    def all(self, axis=None, out=None, keepdims=False):
        """Whether no element is 0, over axes, as `sum`."""
        return _reduce(self, "all", axis, None, keepdims, out)

    def astype(self, dtype, copy=True):
        """The same values in another dtype. Partial values are reduced first, but where the dtype is the same."""
        wanted = _dtype(dtype, "astype")
        if _numpy_dtype(self.info, "astype") == wanted and not copy:
            return self
        return _run(_cast(self.info, wanted), [self.info], [self])

    def copy(self):
        """A tensor of its own with the same values."""
        return self.astype(self.dtype)

    def clip(self, min=None, max=None):
        """The elements, those below min as min and those above max as max."""
        raised = self if min is None else _np().maximum(self, min)
        return raised if max is None else _np().minimum(raised, max)

    def item(self, timeout=None):
        """The one element, as a number. Synchronising."""
        if self.size != 1:
            raise UsageError(f"item: the tensor has {self.size} elements, expected 1")
        return self.full(timeout).numpy().item()

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __format__(self, spec):
        return format(self.item() if spec else repr(self), spec)

    @property
    def size(self):
        """Elements."""
        return math.prod(self.shape)

    def __setitem__(self, key, value):
        _assign(self[key], value)


_BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder", "pow": "power",
           "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift"}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


def _is_operand(object):
    """Whether numpy's function says what is wrong with it, or nothing is. Others may have operators of their own."""
    return isinstance(object, (DTensor, bool, int, float, complex, list, tuple, _np().generic, _np().ndarray))


def _binary(name):
    def call(self, other):
        return getattr(_np(), name)(self, other) if _is_operand(other) else NotImplemented
    return call


def _reflected(name):
    def call(self, other):
        return getattr(_np(), name)(other, self) if _is_operand(other) else NotImplemented
    return call


def _in_place(name):
    def call(self, other):
        return getattr(_np(), name)(self, other, out=(self,)) if _is_operand(other) else NotImplemented
    return call


def _unary(name):
    def call(self):
        return getattr(_np(), name)(self)
    return call


def _add(name, call):
    call.__name__ = call.__qualname__ = name
    setattr(_Arithmetic, name, call)


for _name, _ufunc in _BINARY.items():
    _add(f"__{_name}__", _binary(_ufunc))
    _add(f"__r{_name}__", _reflected(_ufunc))
    _add(f"__i{_name}__", _in_place(_ufunc))
for _name, _ufunc in _COMPARISONS.items():
    _add(f"__{_name}__", _binary(_ufunc))
for _name, _ufunc in _UNARY.items():
    _add(f"__{_name}__", _unary(_ufunc))
_METHODS = {name: getattr(_Arithmetic, name) for name in ("sum", "prod", "max", "min", "mean", "any", "all", "clip", "copy")}
for _name, _value in vars(_Arithmetic).items():
    if _name not in ("__dict__", "__weakref__", "__module__", "__doc__", "__hash__"):
        if inspect.isfunction(_value):
            _value.__qualname__ = f"DTensor.{_name}"
        setattr(DTensor, _name, _value)
