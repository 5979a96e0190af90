"""Data-parallel training of a two-layer network on real 8x8 digits, full batch, as ../digits.cpp does it.

Every worker computes gradients on its own share of the rows; the sums are allreduced, so any number of workers gives the same weights.

    mpirun -n 4 python3 -m tutti examples/python/digits.py [--epochs 200] [--plot loss.png] [--weights file.npy]
"""

import argparse
import pathlib

import numpy as np

import tutti
from tutti import worker

PIXELS, HIDDEN, CLASSES = 64, 48, 10
SHAPES = [(HIDDEN, PIXELS), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,)]
WEIGHTS = sum(int(np.prod(shape)) for shape in SHAPES)


def layers(flat):
    """Views into the weights (or their gradient), which are one flat array."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
    return [flat[end - int(np.prod(shape)):end].reshape(shape) for end, shape in zip(ends, SHAPES)]


def forward(weights, pixels):
    w1, b1, w2, b2 = layers(weights)
    hidden = np.maximum(pixels @ w1.T + b1, 0)
    scores = hidden @ w2.T + b2
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, p / p.sum(axis=1, keepdims=True)


@tutti.register_global_func("digits_py.gradient", override=True)
def gradient(weights, pixels, labels, out):
    """out (float64, [WEIGHTS + 1]; the last is the loss) = sums over all workers' rows. Shares are uneven on purpose."""
    pixels, labels, out = pixels.numpy(), labels.numpy(), out.numpy()
    w, n, rows = worker.id(), worker.count(), len(labels)
    mine = slice(rows * w * (w + 1) // (n * (n + 1)), rows * (w + 1) * (w + 2) // (n * (n + 1)))  # worker k has k+1 parts
    x, y = pixels[mine], labels[mine]
    hidden, p = forward(weights.numpy(), x)
    chosen = p[np.arange(len(y)), y]
    g1, gb1, g2, gb2 = layers(out[:WEIGHTS])
    out[WEIGHTS] = -np.log(np.maximum(chosen, 1e-20)).sum()
    p[np.arange(len(y)), y] -= 1
    back = (p @ layers(weights.numpy())[2]) * (hidden > 0)
    g1[:], gb1[:], g2[:], gb2[:] = back.T @ x, back.sum(axis=0), p.T @ hidden, p.sum(axis=0)
    worker.world().allreduce(out, out)


@tutti.register_global_func("digits_py.step", override=True)
def step(weights, velocity, grad, rows, rate):
    """Momentum; every worker does the same step on its own copy of the weights. Returns the mean loss."""
    w, v, g = weights.numpy(), velocity.numpy(), grad.numpy()
    v *= 0.9
    v -= (rate * g[:WEIGHTS] / rows).astype("float32")
    w += v
    return float(g[WEIGHTS] / rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv.gz")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--plot", help="write the loss curve as a PNG (needs matplotlib)")
    parser.add_argument("--weights", help="write the weights of the last worker, numpy's format")
    options = parser.parse_args()
    data = np.loadtxt(options.data, delimiter=",", dtype="float32")
    pixels, labels = data[:, :PIXELS] / 16, data[:, PIXELS].astype("int32")
    test = np.arange(len(data)) % 5 == 0

    with tutti.Session() as session:
        session.import_python_module("digits")  # this file, for its two functions
        rng = np.random.default_rng(7)
        weights = session.broadcast(rng.uniform(-0.15, 0.15, WEIGHTS).astype("float32"))
        velocity = session.broadcast(np.zeros(WEIGHTS, "float32"))
        x, y = session.broadcast(pixels[~test]), session.broadcast(labels[~test])
        grad = session.empty((WEIGHTS + 1,), "float64")
        compute, update = session.get_global_func("digits_py.gradient"), session.get_global_func("digits_py.step")
        losses = []
        for epoch in range(1, options.epochs + 1):
            compute(weights, x, y, grad)
            losses.append(update(weights, velocity, grad, int((~test).sum()), 0.5).debug_get_from_remote(0))
            print(f"epoch {epoch:3} loss {losses[-1]:.6f}")
        last = weights.debug_get_from_remote(session.num_workers - 1).numpy()
        accuracy = (forward(last, pixels[test])[1].argmax(axis=1) == labels[test]).mean()
        print(f"workers {session.num_workers} test accuracy {accuracy:.4f}")
    if options.weights:
        np.save(options.weights, last)
    if options.plot:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        plt.semilogy(range(1, len(losses) + 1), losses)
        plt.xlabel("epoch"), plt.ylabel("loss"), plt.title(f"digits: test accuracy {accuracy:.3f}")
        plt.savefig(options.plot, dpi=150)
    return 0 if accuracy >= 0.95 else 2


if __name__ == "__main__":
    raise SystemExit(main())
