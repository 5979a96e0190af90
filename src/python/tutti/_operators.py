"""What DTensor is in Python beside its bindings: operators, methods, numpy's functions. What they do is decided in _arithmetic.py."""

import inspect
import math

from ._arithmetic import _COPIED, _FUNCTION, _Number, _axes, _cast, _dtype, _elementwise, _matmul, _np, _numpy_dtype, _operands, _plan, _reduce, _run
from ._core.distributed import DTensor, map_parts
from ._errors import UsageError
from ._propagation import broadcast

_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_or": "any", "logical_and": "all"}


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


def _as_views(tensor, key):
    """The key with x[3] of a cut axis as x[3:4]: the former is a copy, and what is written to it would be lost."""
    items = list(key) if isinstance(key, tuple) else [key]
    cut = {spec.axis for spec in tensor.placement.dim_specs}
    axis, named = 0, sum(item is not Ellipsis for item in items)
    for i, item in enumerate(items):
        if item is Ellipsis:
            axis += len(tensor.shape) - named
            continue
        if axis in cut and isinstance(item, (int, _np().integer)) and not isinstance(item, bool) and -tensor.shape[axis] <= item < tensor.shape[axis]:
            index = int(item) % tensor.shape[axis]
            items[i] = slice(index, index + 1)
        axis += 1
    return tuple(items)


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
        _assign(self[_as_views(self, key)], value)


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
