"""A transformer block (attention and MLP) in Relax, compiled by TVM for the host and tensor parallel by R.ccl, on all ranks. Its
result equals that of the unsplit block, which TVM's own virtual machine runs on rank 0.

    pip install apache-tvm
    mpirun -n 4 python3 -m tutti examples/python/tvm_tensor_parallel.py [heads of a worker [tokens [folder that all nodes see]]]
"""

import os
import sys
import tempfile

import numpy as np
import tvm
from tvm import relax
from tvm.script import relax as R

import tutti
from tutti.distributed import DeviceMesh

HEAD = 16  # width of a head


def block(heads, tokens, width, hidden, is_parallel):
    """main(x, wq, wk, wv, wo, up, down) of one worker: `heads` and `hidden` are its own share. wq, wk, wv and up are cut by columns,
    wo and down by rows: so what leaves attention and the MLP are terms of a sum, which allreduce adds up."""
    op, builder = relax.op, relax.BlockBuilder()
    by_columns, by_rows = (width, heads * HEAD), (heads * HEAD, width)
    shapes = {"x": (1, tokens, width), "wq": by_columns, "wk": by_columns, "wv": by_columns, "wo": by_rows,
              "up": (width, hidden), "down": (hidden, width)}  # fmt: skip
    parameters = [relax.Var(name, R.Tensor(shape, "float32")) for name, shape in shapes.items()]
    x, wq, wk, wv, wo, up, down = parameters
    weight = relax.const(np.ones(width, "float32"))

    def in_heads(y):
        return op.permute_dims(op.reshape(y, (1, tokens, heads, HEAD)), [0, 2, 1, 3])

    def sum_of_all(y):
        return op.ccl.allreduce(y, "sum") if is_parallel else y

    with builder.function("main", parameters):
        with builder.dataflow():
            whole = builder.emit(op.ccl.broadcast_from_worker0(x) if is_parallel else x)  # others may have anything there
            y = builder.emit(op.nn.rms_norm(whole, weight, axes=[-1]))
            q, k, v = (builder.emit(in_heads(op.matmul(y, w))) for w in (wq, wk, wv))
            scores = op.multiply(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])), relax.const(HEAD**-0.5, "float32"))
            mixed = builder.emit(op.matmul(op.nn.softmax(scores, axis=-1), v))
            mixed = op.reshape(op.permute_dims(mixed, [0, 2, 1, 3]), (1, tokens, heads * HEAD))
            whole = builder.emit(op.add(whole, sum_of_all(op.matmul(mixed, wo))))
            y = builder.emit(op.nn.rms_norm(whole, weight, axes=[-1]))
            y = builder.emit(op.matmul(op.nn.gelu(op.matmul(y, up)), down))
            out = builder.emit_output(op.add(whole, sum_of_all(y)))
        builder.emit_func_output(out)
    return tvm.compile(builder.finalize(), target="llvm")


def main(heads=2, tokens=12, folder=None):
    with tutti.Session() as session, tempfile.TemporaryDirectory(dir=folder) as folder:
        workers = session.num_workers
        width = heads * workers * HEAD
        hidden = 4 * width
        rng = np.random.default_rng(0)
        shapes = [(width, width)] * 4 + [(width, hidden), (hidden, width)]
        weights = [(rng.standard_normal(shape) / np.sqrt(shape[0])).astype("float32") for shape in shapes]
        x = rng.standard_normal((1, tokens, width)).astype("float32")

        alone = relax.VirtualMachine(block(heads * workers, tokens, width, hidden, False), tvm.cpu())
        expected = alone["main"](*map(tvm.runtime.tensor, (x, *weights))).numpy()

        path = os.path.join(folder, "block.so")
        block(heads, tokens, width, hidden // workers, True).export_library(path)
        model = session.load_vm_module(path)
        mesh = DeviceMesh(workers)
        cuts = ["S[1]"] * 3 + ["S[0]", "S[1]", "S[0]"]
        parts = [session.distribute(weight, mesh, cut).parts for weight, cut in zip(weights, cuts)]
        on_worker0 = session.empty(x.shape, "float32")
        session.copy_to_worker_0(x, on_worker0)
        y = model["main"](on_worker0, *parts)
        error = max(np.abs(y.debug_get_from_remote(worker).numpy() - expected).max() for worker in range(workers))
        print(f"{heads * workers} heads on {workers} workers, compiled by TVM: largest difference to the unsplit block {error:.1e}")
    return 0 if error < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3]), *sys.argv[3:]))
