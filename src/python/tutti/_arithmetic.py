"""Arithmetic of DTensors: numpy's functions of them are called on each worker with its own parts (_compute.py). Operands that do not lie as the operation
needs it are redistributed first (_propagation.py). No call waits."""

import functools
import operator

from ._compute import FUNCTION as _FUNCTION, numpy_module as _np
from ._core.distributed import DTensor, DTensorStructInfo, TensorStructInfo, map_parts
from ._errors import UsageError
from ._propagation import broadcast, propagate

_COPIED = {"sum", "avg", "prod", "min", "max"}
# op(sum of a, sum of b) = sum of op(a, b)
_JOINT = {"add": {"sum", "avg"}, "subtract": {"sum", "avg"}, "negative": {"sum", "avg"}, "positive": _COPIED,
          "maximum": {"max"}, "minimum": {"min"}}


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
