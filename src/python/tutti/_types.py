"""Small values that registers hold, as Python types. Imports nothing."""

_BUFFER_FORMATS = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    "float16": "e", "float32": "f", "float64": "d", "complex64": "Zf", "complex128": "Zd", "bfloat16": "H",
}


class DataType(str):
    """The name of an element type, such as 'float32'. A plain str does wherever one is asked for; as an argument of a worker function a
    str arrives as a str, a DataType as a DataType."""

    __slots__ = ()


class Shape(tuple):
    """Extents: a tuple of ints."""

    __slots__ = ()

    def __new__(cls, *extents):
        return super().__new__(cls, extents[0] if len(extents) == 1 and not isinstance(extents[0], int) else extents)

    def __repr__(self):
        return f"Shape{tuple(self)!r}"


converters = {}
"""What a value of another library is to us: a function for each type. tutti.tvm fills it."""


def buffer_format(dtype):
    """As the struct module names it; what it has no name for are bytes, or bits as unsigned ints."""
    return _BUFFER_FORMATS.get(dtype, "B")


def numpy_dtype(name):
    import numpy

    if name == "bfloat16" or name.startswith("float8"):
        try:
            import ml_dtypes

            return numpy.dtype(getattr(ml_dtypes, name))
        except (ImportError, AttributeError):
            return numpy.dtype("uint16" if name == "bfloat16" else "uint8")
    return numpy.dtype(name)
