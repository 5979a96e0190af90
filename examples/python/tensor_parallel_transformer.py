"""A transformer block (attention and MLP) split over workers as in Megatron-LM: heads and hidden units are shared out, two allreduces.

It equals the unsplit block, at any number of workers, also if there are more of them than heads.

    mpirun -n 4 python3 -m tutti examples/python/tensor_parallel_transformer.py [heads [sequence length]]
"""

import sys

import numpy as np

import tutti
from tutti import worker

HEAD = 16  # width of a head


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def normalize(x):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def attention(x, wq, wk, wv, wo):
    """x: [tokens, width]; wq, wk, wv: [heads, width, HEAD]; wo: [heads, HEAD, width]. Causal. The sum over heads."""
    out = np.zeros_like(x)
    ahead = np.triu(np.full((len(x), len(x)), -np.inf), 1)
    for q, k, v, o in zip(wq, wk, wv, wo):
        out += softmax((x @ q) @ (x @ k).T / np.sqrt(HEAD) + ahead) @ (x @ v) @ o
    return out


def mlp(x, up, down):
    """up: [width, hidden]; down: [hidden, width]."""
    h = x @ up
    return (h * 0.5 * (1 + np.tanh(0.79788456 * (h + 0.044715 * h**3)))) @ down


@tutti.register_global_func("transformer.keep_share", override=True)
def keep_share(weights, axis):
    """This worker's part: a copy, so that the whole can go."""
    return np.ascontiguousarray(np.array_split(weights.numpy(), worker.count(), axis)[worker.id()])


@tutti.register_global_func("transformer.block", override=True)
def block(x, wq, wk, wv, wo, up, down):
    x = x.numpy()
    for part, weights in (attention, (wq, wk, wv, wo)), (mlp, (up, down)):
        mine = part(normalize(x), *(w.numpy() for w in weights))
        everyone = np.empty_like(mine)
        worker.world().allreduce(mine, everyone)
        x = x + everyone
    return x


def main(heads=6, tokens=20):
    width, hidden = heads * HEAD, 4 * heads * HEAD
    rng = np.random.default_rng(0)
    shapes = [(heads, width, HEAD)] * 3 + [(heads, HEAD, width), (width, hidden), (hidden, width)]
    whole = [rng.standard_normal(shape) / np.sqrt(shape[-2]) for shape in shapes]
    x = rng.standard_normal((tokens, width))

    expected = x + attention(normalize(x), *whole[:4])
    expected = expected + mlp(normalize(expected), *whole[4:])

    with tutti.Session() as session:
        session.import_python_module("tensor_parallel_transformer")
        keep = session.get_global_func("transformer.keep_share")
        shares = [keep(session.broadcast(w), axis) for w, axis in zip(whole, (0, 0, 0, 0, 1, 0))]
        result = session.get_global_func("transformer.block")(session.broadcast(x), *shares)
        got = [result.debug_get_from_remote(w).numpy() for w in range(session.num_workers)]
        error = max(np.abs(g - expected).max() for g in got)
        print(f"{heads} heads on {session.num_workers} workers: largest difference to the unsplit block {error:.1e}")
    return 0 if error < 1e-10 else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
