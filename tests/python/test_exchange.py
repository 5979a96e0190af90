"""DLPack's C functions (__dlpack_c_exchange_api__), called as another library calls them."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import tutti


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]  # fmt: skip


class Managed(ctypes.Structure):
    pass


Managed._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
                    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]  # fmt: skip
SetError = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
Out = ctypes.POINTER(ctypes.POINTER(Managed))


class Exchange(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
                ("allocate", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(DLTensor), Out, ctypes.c_void_p, SetError)),
                ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, Out)),
                ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Managed), ctypes.POINTER(ctypes.c_void_p))),
                ("view", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))),
                ("stream", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)))]  # fmt: skip


pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
pointer_in.restype, pointer_in.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
API = ctypes.cast(pointer_in(tutti.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api"), ctypes.POINTER(Exchange)).contents


def tensor():
    return tutti.tensor(np.arange(6, dtype="float32").reshape(2, 3))


def test_a_view():
    x, seen = tensor(), DLTensor()
    assert API.major == 1 and API.view(x, ctypes.byref(seen)) == 0
    assert (seen.device_type, seen.ndim, seen.code, seen.bits, seen.lanes, seen.byte_offset) == (1, 2, 2, 32, 1, 0)
    assert (seen.shape[:2], seen.strides[:2]) == ([2, 3], [3, 1])
    assert seen.data == np.asarray(x).ctypes.data


def test_a_tensor_that_is_kept():
    x, managed = tensor(), ctypes.POINTER(Managed)()
    memory = np.asarray(x)
    assert API.from_object(x, ctypes.byref(managed)) == 0
    del x
    back = ctypes.c_void_p()
    assert API.to_object(managed, ctypes.byref(back)) == 0
    y = ctypes.cast(back, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(y))  # the reference that was ours
    assert isinstance(y, tutti.Tensor) and y.shape == (2, 3)
    np.asarray(y)[1, 2] = 8
    assert memory[1, 2] == 8


def test_the_memory_is_given_back():
    array = np.arange(4, dtype="float32")
    gone = weakref.ref(array)
    x, managed = tutti.from_dlpack(array), ctypes.POINTER(Managed)()
    assert API.from_object(x, ctypes.byref(managed)) == 0
    del x, array
    gc.collect()
    assert gone() is not None
    managed.contents.deleter(managed)
    gc.collect()
    assert gone() is None


def test_a_new_tensor():
    shape = (ctypes.c_int64 * 2)(3, 4)
    prototype = DLTensor(device_type=1, ndim=2, code=0, bits=16, lanes=1, shape=shape)
    managed, said = ctypes.POINTER(Managed)(), []
    set_error = SetError(lambda _, kind, message: said.append((kind, message)))
    assert API.allocate(ctypes.byref(prototype), ctypes.byref(managed), None, set_error) == 0 and not said
    made = managed.contents.tensor
    assert (made.shape[:2], made.strides[:2], made.code, made.bits) == ([3, 4], [4, 1], 0, 16) and made.data % 64 == 0
    managed.contents.deleter(managed)
    shape[0] = -1
    assert API.allocate(ctypes.byref(prototype), ctypes.byref(managed), None, set_error) == -1
    assert said[0][0] == b"MemoryError" and b"negative" in said[0][1]


def test_what_is_no_tensor_and_where_work_goes():
    managed, stream = ctypes.POINTER(Managed)(), ctypes.c_void_p(1)
    with pytest.raises(BufferError):
        API.from_object("text", ctypes.byref(managed))
    assert API.stream(1, 0, ctypes.byref(stream)) == 0 and not stream


def test_it_is_used_where_it_is_offered():
    class Offers:
        def __dlpack__(self):
            raise AssertionError("the slow way")

    Offers.__dlpack_c_exchange_api__ = tutti.Tensor.__dlpack_c_exchange_api__
    with pytest.raises(BufferError):  # it is asked, and says that this is none of its tensors
        tutti.from_dlpack(Offers())
