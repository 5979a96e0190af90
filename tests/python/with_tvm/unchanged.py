"""A program of TVM's, which knows nothing of tutti: python3 -m tutti --tvm unchanged.py CLASS_OF_SESSION NUMBER_OF_WORKERS"""

import sys
import tempfile

import numpy as np
import tvm
from tvm import relax
from tvm.runtime import disco
from tvm.script import relax as R

kind, workers = getattr(disco, sys.argv[1]), int(sys.argv[2])


def model():
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.ccl.allreduce(relax.op.add(x, x), "sum"))
        builder.emit_func_output(y)
    return builder.finalize()


assert disco.__name__ == "tutti.tvm", disco
session = kind(num_workers=workers)
x = np.arange(12, dtype="float32").reshape(3, 4)
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/model.so"
    tvm.compile(model(), target="llvm").export_library(path)
    loaded = session.load_vm_module(path, device=tvm.cpu())
    result = loaded["main"](session.broadcast(tvm.runtime.tensor(x)))
    host = tvm.runtime.empty((3, 4), "float32")
    session.copy_from_worker_0(host, result)
    session.sync_worker_0()
    np.testing.assert_array_equal(host.numpy(), 2 * workers * x)
if kind is disco.ProcessSession:  # whose workers have imported tvm.exec.disco_worker
    assert session.get_global_func("tests.disco.add_one")(1).debug_get_from_remote(workers - 1) == 2
print("unchanged:", type(session).__name__, workers, "workers")
