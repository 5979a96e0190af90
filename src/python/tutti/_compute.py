"""What workers do for the arithmetic of DTensors: numpy's functions of their own parts, on GPUs by cupy."""

import contextlib

from . import worker
from ._core import Tensor, _register_global_func, empty
from ._errors import UsageError

FUNCTION = "tutti.distributed.arithmetic"


def numpy_module():
    import numpy  # not when tutti is imported
    return numpy


_NO_STREAM = contextlib.nullcontext()


def _module_of(tensor):
    """numpy, or what stands for it where the tensor lies; how it sees a tensor; and its stream."""
    if tensor.__dlpack_device__()[0] == 1:  # kDLCPU
        return numpy_module(), Tensor.numpy, _NO_STREAM
    try:
        import cupy
    except ImportError as error:
        raise UsageError(f"worker {worker.id()}: arithmetic of tensors on {tensor.device} needs cupy there ({error}); or use session.shard_map") from None
    return cupy, cupy.from_dlpack, cupy.cuda.ExternalStream(worker.stream())


def _common(shapes):
    return shapes[0] if all(each == shapes[0] for each in shapes) else numpy_module().broadcast_shapes(*shapes)


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


def _compute(kind, name, options, dtype, is_in_place, *operands):
    """kind: "ufunc", "matmul", "reduce" (options: keepdims, axes), "astype" or "assign". is_in_place: the last operand is the result."""
    np = numpy_module()
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


_register_global_func(FUNCTION, _compute, True)
