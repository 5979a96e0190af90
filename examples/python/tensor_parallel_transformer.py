"""A transformer block (attention and MLP) on a mesh: sequences are shared out over its rows, heads and hidden units over its columns, as in Megatron-LM.

Attention is a function of parts, by shard_map; the MLP is written once, and runs on numpy's arrays and on DTensors (docs/sharded.md).
The result equals the unsplit block, at any number of workers, also if there are more of them than heads.

    mpirun -n 4 python3 -m tutti examples/python/tensor_parallel_transformer.py [heads [sequence length [workers that share the heads]]]
"""

import sys

import numpy as np

import tutti
from tutti.distributed import DeviceMesh

HEAD = 16  # width of a head


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def normalize(x):
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)


def attention(x, wq, wk, wv, wo):
    """x: [sequences, tokens, width]; wq, wk, wv: [heads, width, HEAD]; wo: [heads, HEAD, width]. Causal. The sum over these heads."""
    out = np.zeros_like(x)
    ahead = np.triu(np.full((x.shape[1], x.shape[1]), -np.inf), 1)
    for q, k, v, o in zip(wq, wk, wv, wo):
        out += softmax((x @ q) @ (x @ k).swapaxes(1, 2) / np.sqrt(HEAD) + ahead) @ (x @ v) @ o
    return out


def mlp(x, up, down):
    """up: [width, hidden]; down: [hidden, width]."""
    h = x @ up
    return (h * 0.5 * (1 + np.tanh(0.79788456 * (h + 0.044715 * h**3)))) @ down


@tutti.register_global_func("transformer.attention", override=True)
def attention_of_parts(*parts):
    return attention(*(part.numpy() for part in parts))


def main(heads=6, tokens=20, columns=None):
    width, hidden = heads * HEAD, 4 * heads * HEAD
    rng = np.random.default_rng(0)
    shapes = [(heads, width, HEAD)] * 3 + [(heads, HEAD, width), (width, hidden), (hidden, width)]
    whole = [rng.standard_normal(shape) / np.sqrt(shape[-2]) for shape in shapes]
    x = rng.standard_normal((3, tokens, width))

    expected = x + attention(normalize(x), *whole[:4])
    expected = expected + mlp(normalize(expected), *whole[4:])

    with tutti.Session() as session:
        session.import_python_module("tensor_parallel_transformer")  # this file, for its function
        columns = columns or (session.num_workers // 2 if session.num_workers % 2 == 0 else session.num_workers)
        mesh = DeviceMesh((session.num_workers // columns, columns), names=["data", "tensor"])
        data, by_head = "S[0], R", "R, S[0]"
        x = session.distribute(x, mesh, data)
        *attends, up, down = (session.distribute(w, mesh, placement) for w, placement in zip(whole, [by_head] * 4 + ["R, S[1]", "R, S[0]"]))
        attend = session.shard_map("transformer.attention", mesh, [data] + [by_head] * 4, "S[0], P")
        y = (x + attend(normalize(x), *attends)).redistribute(data)  # each worker has a term of the sum; here they are added up
        y = (y + mlp(normalize(y), up, down)).redistribute(data)
        error = np.abs(y.full().numpy() - expected).max()
        print(f"{heads} heads on {session.num_workers} workers, {mesh.shape[0]} x {mesh.shape[1]}: largest difference to the unsplit block {error:.1e}")
    return 0 if error < 1e-10 else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
