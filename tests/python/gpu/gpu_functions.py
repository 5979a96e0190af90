import ctypes
import os

import numpy as np

import tutti
from tutti import worker


@tutti.register_global_func("gpu.where", override=True)
def where():
    return [worker.device(), worker.stream() != 0]


@tutti.register_global_func("gpu.device_of", override=True)
def device_of(x):
    return x.device


@tutti.register_global_func("gpu.sum_and_double", override=True)
def sum_and_double(x):
    worker.world().allreduce(x, x)
    host = tutti.empty(x.shape, x.dtype).copyfrom(x)
    x.copyfrom(2 * np.asarray(host))


@tutti.register_global_func("gpu.touch", override=True)
def touch(x):
    x.numpy()


def cuda(function, *args):
    """Of the driver, as another library would call it."""
    driver, address, found = ctypes.CDLL(os.environ["TUTTI_CUDA_LIBRARY"]), ctypes.c_void_p(), ctypes.c_int()
    asked = driver.cuGetProcAddress_v2(function.encode(), ctypes.byref(address), 12000, ctypes.c_ulonglong(0), ctypes.byref(found))
    assert asked == 0 and address, f"the driver has no {function}"
    status = ctypes.CFUNCTYPE(ctypes.c_int)(address.value)(*args)
    assert status in (0, 600), f"{function}: {status}"
    return status


@tutti.register_global_func("gpu.read_elsewhere", override=True)
def read_elsewhere(x, rounds):
    """A consumer with a stream of its own reads what is under way on the worker's."""
    context, stream, event = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), x.device.index)
    cuda("cuCtxSetCurrent", context)
    cuda("cuStreamCreate", ctypes.byref(stream), 1)
    cuda("cuEventCreate", ctypes.byref(event), 2)
    there = ctypes.c_void_p(x.__cuda_array_interface__["data"][0])
    host = np.empty(x.shape, "float32")
    for i in range(rounds):
        x.copyfrom(np.full(x.shape, i, "float32"))
        x.__dlpack__(stream=stream.value)
        cuda("cuMemcpyDtoHAsync", host.ctypes.data_as(ctypes.c_void_p), there, ctypes.c_size_t(host.nbytes), stream)
        cuda("cuEventRecord", event, stream)
        while cuda("cuEventQuery", event) == 600:
            pass
        assert (host == i).all(), f"round {i}: {host[0]}"
    cuda("cuStreamDestroy", stream)


class Owner:
    def __init__(self, tensor):
        self.tensor, self.stream = tensor, None

    def __dlpack__(self, stream=None):
        self.stream = stream
        return self.tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@tutti.register_global_func("gpu.take", override=True)
def take(x):
    owner = Owner(x)
    taken = tutti.from_dlpack(owner)
    assert owner.stream == worker.stream() and taken.device == x.device, (owner.stream, worker.stream(), taken.device)
    return taken


@tutti.register_global_func("gpu.interface", override=True)
def interface(x):
    told = x.__cuda_array_interface__
    assert not hasattr(tutti.tensor([1.0]), "__cuda_array_interface__")
    return [list(told["shape"]), told["typestr"], told["strides"] is None, told["version"], told["stream"] == worker.stream()]


@tutti.register_global_func("gpu.made", override=True)
def made():
    return tutti.tensor(np.arange(5, dtype="int64"), device=worker.device())
