"""The module that stands in the place of tvm.runtime.disco: after `import tutti.tvm`, `from tvm.runtime import disco` gives it.

    import tutti.tvm
    from tvm.runtime import disco

    session = disco.ThreadedSession(num_workers=4)
    model = session.load_vm_module("model.so")

A program left as it is: `python3 -m tutti --tvm script.py`, also under mpirun or srun. The session API is that of
tutti.disco. TVM's values are taken wherever tutti's are (tensors without a copy, shapes, arrays, devices, dtypes), and
debug_get_from_remote gives TVM's, to all users of tutti in this process. On workers the collectives are in TVM's
registry, under Disco's names.

Raises ImportError if apache-tvm is not installed.
"""

import sys

try:
    import tvm as _tvm
    import tvm_ffi as _ffi
except ModuleNotFoundError as error:
    if error.name not in ("tvm", "tvm_ffi"):
        raise
    raise ImportError(f"tutti.tvm needs TVM: pip install apache-tvm ({error})") from None

from . import _core, _types
from . import disco as _disco
from .disco import DiscoAction, DModule, DPackedFunc, DRef, Session, ThreadedSession

REDUCE_OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}  # Disco's numbers

__all__ = ["DiscoAction", "DModule", "DPackedFunc", "DRef", "ProcessSession", "Session", "SocketSession", "ThreadedSession"]


_WORKER = "tvm.exec.disco_worker"


class ProcessSession(_disco.ProcessSession):
    """As tutti's. Workers import TVM, then the module `entrypoint`, whose functions they are to have."""

    def __init__(self, num_workers, num_groups=1, entrypoint=_WORKER):
        super().__init__(num_workers, num_groups)
        for module in (__name__, entrypoint):
            self.import_python_module(module)


class SocketSession(_disco.SocketSession):
    """As tutti's. Workers import TVM, then tvm.exec.disco_worker."""

    def __init__(self, num_nodes, num_workers_per_node, num_groups, host, port):
        super().__init__(num_nodes, num_workers_per_node, num_groups, host, port)
        for module in (__name__, _WORKER):
            self.import_python_module(module)


def _to_device(device):
    return _core.Device(device.dlpack_device_type(), device.index)


def _to_tvm(value):
    """What a worker has returned, as TVM has it."""
    if isinstance(value, list):
        return _ffi.Array([_to_tvm(item) for item in value])
    if isinstance(value, dict):
        return _ffi.Map({_to_tvm(key): _to_tvm(item) for key, item in value.items()})
    if isinstance(value, str):
        return _ffi.dtype(value) if isinstance(value, _types.DataType) else _ffi.core.String(value)
    if isinstance(value, _types.Shape):
        return _ffi.Shape(value)
    if isinstance(value, _core.Device):
        return _tvm.runtime.Device(value.device_type, value.index)
    if isinstance(value, bytes):
        return _ffi.core.Bytes(value)
    if isinstance(value, _core.PackedFunc):
        return _ffi.convert(lambda *arguments: _to_tvm(value(*arguments)))
    return _tvm.runtime.from_dlpack(value) if isinstance(value, _core.Tensor) else value


_get_from_remote = DRef.debug_get_from_remote


def _debug_get_from_remote(self, worker_id, timeout=None):
    return _to_tvm(_get_from_remote(self, worker_id, timeout))


_types.converters.update({
    _ffi.Shape: _types.Shape,
    _ffi.Array: list,
    _ffi.Map: dict,
    _ffi.dtype: _types.DataType,
    _ffi.Device: _to_device,
    _tvm.runtime.Device: _to_device,
})
for _type, _convert in (("Dict", dict), ("List", list)):  # since tvm-ffi 0.1.10
    if hasattr(_ffi, _type):
        _types.converters[getattr(_ffi, _type)] = _convert
DRef.debug_get_from_remote = _debug_get_from_remote
_core.get_global_func("runtime.disco._adopt_tvm")()
session = _tvm.runtime.disco = sys.modules["tvm.runtime.disco"] = sys.modules["tvm.runtime.disco.session"] = sys.modules[__name__]
