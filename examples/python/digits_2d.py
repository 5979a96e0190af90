"""Training of a two-layer network on real 8x8 digits, split two ways: images over rows of a mesh, hidden units over its columns.

The tensors are sharded (docs/sharded.md), and one function of parts does a step: scores are summed up along the mesh
dimension "tensor", gradients along "data". Any mesh gives the same weights, but for rounding.

With --checkpoint the weights are saved now and then while the training goes on, and when the job is to make room (SIGUSR1; exit code
75). Started again, on any number of workers, the program goes on where it was.

    mpirun -n 4 python3 -m tutti examples/python/digits_2d.py [--tensor 2] [--epochs 200] [--checkpoint file.safetensors] [--weights file.npz]
"""

import argparse
import os
import pathlib

import numpy as np

import tutti
from tutti.distributed import DeviceMesh, TensorStructInfo, full, shard_context, zeros

PIXELS, HIDDEN, CLASSES = 64, 48, 10


@tutti.register_global_func("digits_2d.step", override=True)
def step(x, y, w1, b1, w2, b2, v1, c1, v2, c2, images, rate):
    """A step of momentum, in place: the weights stay where they are. Returns this part's share of the mean loss."""
    data, tensor = shard_context().comm("data"), shard_context().comm("tensor")
    x, y, w1, b1, w2, b2 = (part.numpy() for part in (x, y, w1, b1, w2, b2))
    hidden = np.maximum(x @ w1.T + b1, 0)
    scores = hidden @ w2.T
    tensor.allreduce(scores, scores)  # the others have other hidden units
    p = np.exp(scores + b2 - (scores + b2).max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    loss = -np.log(np.maximum(p[np.arange(len(y)), y], 1e-20)).sum()
    p[np.arange(len(y)), y] -= 1
    back = (p @ w2) * (hidden > 0)
    gradients = back.T @ x, back.sum(axis=0), p.T @ hidden, p.sum(axis=0)
    for weights, velocity, gradient in zip((w1, b1, w2, b2), (v1, c1, v2, c2), gradients):
        total = np.ascontiguousarray(gradient, "float64")
        data.allreduce(total, total)  # the others have other images
        velocity = velocity.numpy()
        velocity *= 0.9
        velocity -= (rate * total / images).astype("float32")
        weights += velocity
    return float(loss / images)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv.gz")
    parser.add_argument("--tensor", type=int, help="workers that share the hidden units; default 2 if that divides the workers")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--checkpoint", help="go on from this .safetensors file if it is there, and save into it")
    parser.add_argument("--weights", help="write the weights, numpy's format")
    options = parser.parse_args()
    data = np.loadtxt(options.data, delimiter=",", dtype="float32")
    pixels, labels = data[:, :PIXELS] / 16, data[:, PIXELS].astype("int32")
    test = np.arange(len(data)) % 5 == 0

    with tutti.Session() as session:
        session.import_python_module("digits_2d")  # this file, for its function
        columns = options.tensor or (2 if session.num_workers % 2 == 0 else 1)
        mesh = DeviceMesh((session.num_workers // columns, columns), names=["data", "tensor"])
        rng = np.random.default_rng(7)
        shapes = [(HIDDEN, PIXELS), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,)]
        first = [rng.uniform(-0.15, 0.15, shape).astype("float32") for shape in shapes]
        placements = ["R, S[0]", "R, S[0]", "R, S[1]", "R, R"]  # hidden units are cut, wherever they are an axis
        names, done = ["w1", "b1", "w2", "b2"], 0
        if options.checkpoint and os.path.exists(options.checkpoint):
            wanted = {name + kind: placement for kind in ("", ".velocity") for name, placement in zip(names, placements)}
            saved = session.load(options.checkpoint, mesh, {**wanted, "epochs": "R, R"})
            weights, velocity = [saved[name] for name in names], [saved[name + ".velocity"] for name in names]
            done = int(saved["epochs"].full().numpy())
            print(f"goes on after {done} epochs")
        else:
            weights = [session.distribute(array, mesh, placement) for array, placement in zip(first, placements)]
            velocity = [zeros(session, array.shape, mesh, placement) for array, placement in zip(first, placements)]

        def save(how):
            tensors = {**dict(zip(names, weights)), **{name + ".velocity": tensor for name, tensor in zip(names, velocity)}}
            return how(options.checkpoint, {**tensors, "epochs": full(session, (), done, mesh, "R, R", "int64")})

        if options.checkpoint:
            session.on_preemption(lambda: save(session.save))
        saving = None
        x, y = (session.distribute(array[~test], mesh, "S[0], R") for array in (pixels, labels))
        one_step = session.shard_map("digits_2d.step", mesh, ["S[0], R", "S[0], R", *placements, *placements, None, None], "P, R")
        for epoch in range(done, options.epochs):
            loss = one_step(x, y, *weights, *velocity, len(x), 0.5, out_sinfos=TensorStructInfo((), "float64"))
            if epoch % 50 == 0 or epoch + 1 == options.epochs:
                print(f"epoch {epoch}: loss {loss.full().numpy():.4f}")
            done = epoch + 1
            if options.checkpoint and (done % 50 == 0 or done == options.epochs):
                if saving:
                    saving.wait()  # raises what went wrong with the last one
                saving = save(session.save_async)
        if saving:
            saving.wait()
        w1, b1, w2, b2 = (tensor.full().numpy() for tensor in weights)
        scores = np.maximum(pixels[test] @ w1.T + b1, 0) @ w2.T + b2
        accuracy = (scores.argmax(axis=1) == labels[test]).mean()
        print(f"{mesh.shape[0]} x {mesh.shape[1]} workers: accuracy {accuracy:.4f} on {test.sum()} images")
        if options.weights:
            np.savez(options.weights, w1, b1, w2, b2)


if __name__ == "__main__":
    main()
