"""use_kernels.py LIBRARY KIND WORKERS no|before|after: uses kernels.cc's functions; libtvm_ffi is not imported, or before the
library is loaded, or after it."""

import pathlib
import sys

import numpy as np


def run(library, kind, workers, ffi):
    if ffi == "before":
        import tvm_ffi  # noqa: F401

    import tutti

    def of_all(dref):
        return [dref.debug_get_from_remote(worker) for worker in range(workers)]

    def use(session, kernels):
        def fails(call, *words):
            try:
                call()
                session.sync_all()
            except tutti.RemoteError as error:
                assert all(word in str(error) for word in words), str(error)
            else:
                raise AssertionError(f"nothing failed: expected {words}")

        x, y = session.broadcast(np.arange(4, dtype="float32")), session.empty((4,), "float32")
        kernels["add_one"](x, y)
        for got in of_all(y):
            np.testing.assert_array_equal(got.numpy(), [1, 2, 3, 4])
        for got in of_all(kernels["doubled"](x)):
            np.testing.assert_array_equal(got.numpy(), [0, 2, 4, 6])
        for got in of_all(kernels["second_half"](kernels["doubled"](x))):
            np.testing.assert_array_equal(got.numpy(), [4, 6])
        assert set(of_all(kernels["greet"]("you"))) == {"hello, you, from a kernel library"}
        assert set(of_all(kernels["sum"](tutti.Shape(1, 2, 3)))) == {6}
        assert of_all(kernels["pair"](1, [2, "x", [3.5]])) == [[1, 3, [2, "x", [3.5]]]] * workers
        assert of_all(kernels["call"](session.get_global_func("tutti.echo"), "back")) == ["back"] * workers
        assert set(of_all(kernels["legs"](kernels["bird"]()))) == {2}
        assert set(of_all(kernels["legs"](kernels["cat"]()))) == {4}
        assert set(of_all(session.get_global_func("tutti.test." + pathlib.Path(library).stem)(1))) == {2}
        fails(lambda: kernels["add_one"](session.broadcast(np.zeros((2, 2), "float32")), y), "ValueError: x has 2 axes, expected 1", "kernels.cc")
        fails(lambda: kernels["sum"]("x"), "TypeError: Mismatched type on argument #0", "Expected `ffi.Shape` but got `ffi.SmallStr`")
        fails(lambda: kernels["legs"](y), "Expected `tutti.test.Animal` but got `ffi.Tensor`")
        fails(lambda: kernels["add_one"](x), "Expected 2 but got 1 arguments")

    with {"thread": tutti.ThreadedSession, "process": tutti.ProcessSession, "mpi": tutti.Session}[kind](workers) as session:
        kernels = session.load_vm_module(library)
        use(session, kernels)
        if ffi == "after":
            import tvm

            assert tvm.runtime.tensor([1.0]).numpy()[0] == 1
            use(session, kernels)


if __name__ == "__main__":
    library, kind, workers, ffi = sys.argv[1:]
    run(library, kind, int(workers), ffi)
    print("libtvm_ffi" in open("/proc/self/maps").read())
