import numpy as np

import tutti
from tutti import worker


@tutti.register_global_func("gpu.where", override=True)
def where():
    return [worker.device(), worker.stream() != 0]


@tutti.register_global_func("gpu.sum_and_double", override=True)
def sum_and_double(x):
    worker.world().allreduce(x, x)
    host = tutti.empty(x.shape, x.dtype).copyfrom(x)
    x.copyfrom(2 * np.asarray(host))


@tutti.register_global_func("gpu.touch", override=True)
def touch(x):
    x.numpy()
