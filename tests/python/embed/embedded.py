"""What embed_test.cpp calls in workers of a C++ program."""

import numpy as np

import tutti
from tutti import worker


def register(f):
    return tutti.register_global_func("embedded." + f.__name__, f, override=True)


@register
def scale(x, by):
    x.numpy()[:] *= by


@register
def total(x):
    mine, everyone = np.array([x.numpy().sum()], "float64"), np.zeros(1)
    worker.world().allreduce(mine, everyone)
    return float(everyone[0])


@register
def make(text):
    return {text: 1}


@register
def size(made):
    return len(made)


@register
def multiplier(k):
    return lambda x: x * k


@register
def say(text):
    print(text)


@register
def fail():
    raise KeyError("on purpose")
