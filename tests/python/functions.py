"""Worker functions: every worker imports this."""

import functools
import os
import signal
import sys
import time

import numpy as np

import tutti
from tutti import worker


def register(f):
    return tutti.register_global_func("test." + f.__name__, f, override=True)


@register
def add(a, b):
    return a + b


@register
def shard_rows(source, parts, target):
    target.numpy()[...] = source.numpy().reshape(target.shape)


@register
def shard_columns(source, parts, target):
    rows, columns = source.shape
    target.numpy()[...] = source.numpy().reshape(rows, parts, columns // parts).transpose(1, 0, 2)


@register
def twice(source, target):
    target.numpy()[...] = 2 * source.numpy()


@register
def identity(x):
    return x


@register
def type_name(x):
    return type(x).__name__


@register
def fail(who):
    if worker.id() == who or who < 0:
        raise KeyError(f"worker {worker.id()} fails")
    return worker.id()


@register
def leave(code):
    sys.exit(code)


class Mine:
    def __init__(self, worker):
        self.worker = worker


@register
def make_object():
    return Mine(worker.id())


@register
def look_into(made):
    return made.worker


@register
def make_closure(k):
    return lambda x: x * k


@register
def count_arguments(*arguments):
    return len(arguments)


@register
def make_partial(k):
    return functools.partial(pow, k)


@register
def call(f, x):
    return f(x)


@register
def scale(x, k):
    view = x.numpy()
    view *= k


@register
def make_array(n):
    return np.full(n, worker.id(), dtype="float64")


@register
def total(x):
    return float(x.numpy().sum())


@register
def places():
    return [worker.id(), worker.count(), worker.group_id(), worker.group_size(), worker.num_groups()]


@register
def exchange(x, op):
    """allreduce by the worker's own hand, of numpy arrays."""
    out = np.empty_like(x.numpy())
    worker.world().allreduce(x, out, op)
    return out


@register
def exchange_uneven():
    """Worker w has w + r elements for worker r, all of them its id."""
    me, n = worker.id(), worker.count()
    counts = [me + r for r in range(n)]  # from r as many as for r
    got = np.empty(sum(counts), "float32")
    worker.world().all_to_all(np.full(sum(counts), me, "float32"), got, counts, counts)
    return got


@register
def sum_over(workers):
    """Over those that are listed; the others have -1."""
    if worker.id() not in workers:
        return -1.0
    x = np.full(1, worker.id(), "float64")
    worker.comm(workers).allreduce(x, x)
    return float(x[0])


@register
def catch_and_go_on(x):
    try:
        worker.world().allreduce(x, np.empty(3, "float32"))
    except tutti.UsageError:
        return "caught"
    return "not caught"


@register
def fail_before_allreduce(x, who):
    if worker.id() == who:
        raise ValueError("not me")
    worker.world().allreduce(x, x)


@register
def use_a_session():
    with tutti.ThreadedSession(1) as inner:
        return inner.num_workers


class Odd:
    def __repr__(self):
        raise RuntimeError("no repr")

    def __del__(self):
        raise RuntimeError("no end")


@register
def make_odd():
    return Odd()


class SilentError(Exception):
    def __str__(self):
        raise RuntimeError("no message")


@register
def fail_silently():
    raise SilentError


@register
def pause(seconds):
    time.sleep(seconds)


@register
def die(who):
    if worker.id() == who:
        os.kill(os.getpid(), signal.SIGKILL)


@register
def pid():
    return os.getpid()


@register
def say(text):
    print(f"worker {worker.id()} says {text}")


@register
def echo(x):
    return x


@register
def add_one(x):
    return x.numpy() + 1


@register
def dot(a, b):
    return a.numpy() @ b.numpy()


@register
def make_fetch(base):
    arrays = {"a": 2, "b": 3}
    return lambda name, rank: np.full(arrays[name], base * (1 + (name == "b")) + rank, "float32")


@register
def transform(rank, fetch):
    return [fetch("a", rank), fetch("b", rank)]


@tutti.register_global_func("test.matmul", override=True)
def matmul(a, b):
    return a.numpy() @ b.numpy()


@tutti.register_global_func("test.matmul_along", override=True)
def matmul_along(a, b, dim):
    """With the products of all workers along a mesh dimension."""
    context = tutti.distributed.shard_context()
    assert context.args[2] is None and a.shape == context.local(0)[0] and context.coordinate == context.mesh.coordinate(tutti.worker.id())
    product = a.numpy() @ b.numpy()
    result = np.empty_like(product)
    context.comm(dim).allreduce(product, result)
    return [result]


@tutti.register_global_func("test.fail_on", override=True)
def fail_on(part, worker):
    if tutti.worker.id() == worker:
        raise ValueError("fails on purpose")
    return part


@tutti.register_global_func("test.slow", override=True)
def slow(part):
    time.sleep(0.2)
    return part


@tutti.register_global_func("test.extent", override=True)
def extent(part):
    return part.shape[0]
