"""Arithmetic of DTensors against numpy: any placements, meshes and shapes that fit, on every kind of session and number of workers."""

import os
import random

import numpy as np
import pytest
from conftest import WORKERS, make_session
from test_distributed import some_mesh, some_placement

import tutti
from tutti.distributed import DeviceMesh, Placement, PlacementSpec, bytes_moved, map_parts

CASES = int(os.environ.get("TUTTI_TEST_PROGRAMS", "60"))
DTYPES = ["int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64", "bool"]
UNARY = [np.negative, np.positive, np.absolute, np.sqrt, np.square, np.logical_not, np.isnan, np.conjugate]
BINARY = [np.add, np.subtract, np.multiply, np.true_divide, np.floor_divide, np.maximum, np.minimum, np.power, np.less, np.equal, np.logical_and, np.arctan2]
NUMBERS = [2, -1, 0, True, 0.5, 2.0, np.float32(3), np.float64(0.25), np.int8(2), np.int64(3), np.array(2.5), 1j, np.complex64(2)]


@pytest.fixture
def session():
    with make_session() as made:
        yield made


def small_numbers(rng, shape, dtype):
    """Sums of them are exact in any order."""
    return rng.integers(0, 3, shape).astype(dtype) if dtype in ("uint8", "bool") else rng.integers(-2, 3, shape).astype(dtype)


def some_shape(draw, most=4):
    return tuple(draw.choice([0, 1, 2, 3, 4, 5, 7]) for _ in range(draw.randint(0, most)))


def stretched(draw, shape):
    """A shape that broadcasts with this one."""
    shape = [1 if draw.random() < 0.3 else extent for extent in shape]
    return tuple(shape[draw.randint(0, len(shape)):] if draw.random() < 0.3 else shape)


def terms_of(array, count, op, rng):
    """`count` arrays that make this one. Sums of integers wrap around."""
    if op in ("max", "min"):
        terms = np.stack([array] * count)
        flat, columns = terms.reshape(count, array.size), np.arange(array.size)
        if count > 1 and array.size:  # one of the terms is another number
            flat[columns % count, columns] = array.min() if op == "max" else array.max()
        return terms
    dtype = array.dtype
    wide = dtype.kind in "iu"
    terms = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (count, *array.shape), dtype) if wide else rng.integers(-2, 3, (count, *array.shape)).astype(dtype)
    with np.errstate(over="ignore"):
        terms[0] += array - terms.sum(axis=0, dtype=dtype)
    return terms


def spread(draw, session, mesh, array):
    """Anywhere. Partial values are made of different terms on each worker: of parts of one more axis, which is added up."""
    placement = some_placement(draw, mesh, array.shape, str(array.dtype))
    ops = {spec.op for spec in placement.dim_specs if spec.op}
    if not ops or "prod" in ops:
        return session.distribute(array, mesh, placement)
    op, count = ops.pop(), int(np.prod([n for n, spec in zip(mesh.shape, placement.dim_specs) if spec.op]))
    moved = [PlacementSpec.sharding(0) if spec.op else PlacementSpec.ragged(spec.axis + 1, spec.sizes) if spec.sizes else
             PlacementSpec.sharding(spec.axis + 1) if spec.axis >= 0 else spec for spec in placement.dim_specs]
    terms = session.distribute(terms_of(array, count, op, np.random.default_rng(draw.random().as_integer_ratio()[0] % 2**32)), mesh, Placement(moved))
    tensor = terms.sum(axis=0, dtype=str(array.dtype)) if op == "sum" else getattr(terms, op)(axis=0)
    assert tensor.placement == placement
    return tensor


def outcome(call):
    """What numpy returns, or that it refuses."""
    try:
        with np.errstate(all="ignore"):
            return call()
    except (TypeError, ValueError, OverflowError) as error:
        return error


def compare(session, ours, theirs, told):
    """ours: () -> DTensor. Some values are refused on the workers."""
    if isinstance(theirs, Exception):
        with pytest.raises((TypeError, ValueError, OverflowError, tutti.RemoteError)):
            ours()
            session.sync_all()
        return False
    with np.errstate(all="ignore"):
        got = ours().full().numpy()
    theirs = np.asarray(theirs)
    assert (got.dtype, got.shape) == (theirs.dtype, theirs.shape), told
    np.testing.assert_array_equal(got, theirs, told)
    return True


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numpy_s_functions(session):
    done = 0
    for seed in range(CASES):
        draw, rng = random.Random(seed), np.random.default_rng(seed)
        mesh, shape = some_mesh(draw), some_shape(draw)
        a, b = (small_numbers(rng, each, draw.choice(DTYPES)) for each in (shape, stretched(draw, shape)))
        x, y = spread(draw, session, mesh, a), spread(draw, session, mesh, b)
        number, binary, unary = draw.choice(NUMBERS), draw.choice(BINARY), draw.choice(UNARY)
        told = f"seed {seed}: {binary.__name__}, {unary.__name__}, {number!r} of {x!r}, {y!r}"
        if a.ndim and b.ndim:  # some numpys take the dtype of what has no axes from its value
            done += compare(session, lambda: binary(x, y), outcome(lambda: binary(a, b)), told)
            done += compare(session, lambda: binary(y, x), outcome(lambda: binary(b, a)), told)
            done += compare(session, lambda: binary(y, number), outcome(lambda: binary(b, number)), told)
            done += compare(session, lambda: binary(number, x), outcome(lambda: binary(number, a)), told)
        done += compare(session, lambda: unary(x), outcome(lambda: unary(a)), told)
    assert done > CASES


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operators(session):
    mesh = DeviceMesh(WORKERS)
    a, b = np.arange(1, 13).reshape(3, 4), np.arange(4)[::-1] + 1
    x, y = session.distribute(a, mesh, "S[0]"), session.distribute(b, mesh, "P")
    for name, got, expected in [
        ("+", x + y, a + b), ("-", 7 - x, 7 - a), ("*", x * 2, a * 2), ("/", x / y, a / b), ("//", x // y, a // b), ("%", 20 % x, 20 % a), ("**", x**2, a**2),
        ("@", x @ y, a @ b), ("&", x & 6, a & 6), ("|", x | y, a | b), ("^", x ^ y, a ^ b), ("<<", 1 << x, 1 << a), (">>", x >> 1, a >> 1), ("-x", -x, -a), ("+x", +x, +a),
        ("abs", abs(-x), a), ("~", ~x, ~a), ("<", x < y, a < b), ("<=", x <= 3, a <= 3), (">", x > y, a > b), (">=", 3 >= x, 3 >= a), ("==", x == y, a == b),
        ("!=", x != 3, a != 3), ("0", 1 / (x * 0.0), 1 / (a * 0.0)), ("-0", 1 / (x * -0.0), 1 / (a * -0.0)), ("numpy's", np.array(3) + x, 3 + a), ("T", x.T, a.T), ("transpose", x.transpose(-1, 0), a.T), ("astype", x.astype("float32"), a.astype("float32")),
        ("astype(float)", x.astype(float), a.astype(float)), ("bool", (x > 3).astype("int8"), (a > 3).astype("int8")),
    ]:
        expected = np.asarray(expected)
        got = got.full().numpy()
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
        np.testing.assert_array_equal(got, expected, name)
    assert (x == None) is False and x != "x" and len({x, y}) == 2  # noqa: E711  a tensor is itself, as a key, too


def test_the_types_of_numbers_count(session):
    x = session.distribute(np.arange(4, dtype="int8"), DeviceMesh(WORKERS), "S[0]")
    assert [str((x + number).dtype) for number in (1, True, 1.0, np.int64(1), 1, 1j)] == [str((np.zeros(1, "int8") + number).dtype) for number in (1, True, 1.0, np.int64(1), 1, 1j)]
    singles, tenth = session.distribute(np.ones(4, "float32"), DeviceMesh(WORKERS), "S[0]"), session.distribute(np.array(0.1), DeviceMesh(WORKERS), "R")
    assert (singles * tenth).dtype == "float64" and set((singles * tenth).full().numpy()) == {0.1}


def test_matmul(session):
    for seed in range(CASES):
        draw, rng = random.Random(seed), np.random.default_rng(seed)
        mesh = some_mesh(draw)
        m, k, n = (draw.choice([0, 1, 2, 3, 5, 8]) for _ in range(3))
        batch = some_shape(draw, 2)
        left, right = draw.choice([((m, k), (k, n)), ((k,), (k, n)), ((m, k), (k,)), ((k,), (k,)), (batch + (m, k), stretched(draw, batch) + (k, n))])
        dtypes = draw.choice([("float32", "float32"), ("float64", "float32"), ("int32", "int32"), ("complex64", "float32"), ("float16", "float16"), ("bool", "bool")])
        a, b = small_numbers(rng, left, dtypes[0]), small_numbers(rng, right, dtypes[1])
        x, y = spread(draw, session, mesh, a), spread(draw, session, mesh, b)
        compare(session, lambda: x @ y, a @ b, f"seed {seed}: {x!r} @ {y!r}")


def test_reductions(session):
    for seed in range(CASES):
        draw, rng = random.Random(seed), np.random.default_rng(seed)
        mesh, shape = some_mesh(draw), some_shape(draw)
        a = small_numbers(rng, shape, draw.choice(DTYPES))
        x = spread(draw, session, mesh, a)
        axes = None if draw.random() < 0.2 else tuple(draw.sample(range(a.ndim), draw.randint(0, a.ndim)))
        axis = axes[0] if axes and draw.random() < 0.3 else axes
        keepdims = draw.random() < 0.5
        told = f"seed {seed}: {axis}, {keepdims} of {x!r}"
        for name in ("sum", "max", "min", "any", "all", *(["prod"] if a.size < 20 else [])):
            if name in ("max", "min") and (a.dtype.kind == "c" or a.size == 0):
                continue
            compare(session, lambda: getattr(np, name)(x, axis=axis, keepdims=keepdims), getattr(a, name)(axis=axis, keepdims=keepdims), f"{name}, {told}")
        compare(session, lambda: np.add.reduce(x, axis=axis, keepdims=keepdims), np.add.reduce(a, axis=axis, keepdims=keepdims), told)
        if a.size and a.dtype != "float16":
            np.testing.assert_allclose(x.mean(axis, keepdims=keepdims).full().numpy(), a.mean(axis, keepdims=keepdims), 1e-5, 1e-6, err_msg=told)
    with pytest.raises(tutti.UsageError, match="max: of no elements"):
        session.distribute(np.zeros((3, 0)), DeviceMesh(WORKERS), "S[0]").max()
    half = session.distribute(np.full(3000, 100, "float16"), DeviceMesh(WORKERS), "S[0]")
    assert (half.mean().dtype, half.mean().item()) == ("float16", 100)  # the sum is too large for float16


def test_in_place(session):
    for seed in range(CASES // 2):
        draw, rng = random.Random(seed), np.random.default_rng(seed)
        mesh, shape = some_mesh(draw), some_shape(draw)
        a, b = small_numbers(rng, shape, "float32"), small_numbers(rng, stretched(draw, shape), "float32")
        if a.ndim == 0:
            continue
        placement = some_placement(draw, mesh, shape, "bool")
        x, y = session.distribute(a, mesh, placement), spread(draw, session, mesh, b)
        told = f"seed {seed}: {x!r} += {y!r}"
        parts = x.parts
        if "P(" in str(placement):
            with pytest.raises(tutti.UsageError, match="add: the result can't be"):
                x += y
            continue
        x += y
        a += b
        x *= 2
        a *= 2
        np.subtract(x, 1, out=x)
        a -= 1
        assert x.parts is parts or x.parts.reg_id == parts.reg_id
        np.testing.assert_array_equal(x.full().numpy(), a, told)
        assert x.placement == placement, told


def test_in_place_on_a_sum(session):
    mesh = DeviceMesh(WORKERS)
    p, r = session.distribute(np.arange(6.0), mesh, "P"), session.distribute(np.arange(6.0), mesh, "R")
    p += r
    p *= 0.5
    p -= p
    p += r
    assert str(p.placement) == "P" and list(p.full().numpy()) == [0, 1, 2, 3, 4, 5]
    for wrong in (lambda: np.multiply(p, 2, out=p), lambda: np.exp(p, out=p), lambda: np.add(p, 1, out=p)):
        with pytest.raises(tutti.UsageError, match="the result can't be 'P' here"):
            wrong()


def test_writing_to_slices(session):
    mesh = DeviceMesh(WORKERS)
    a = np.arange(24.0).reshape(4, 6)
    x = session.distribute(a, mesh, "S[0]")
    row = session.distribute(np.arange(6.0), mesh, "S[0]")
    x[:, 1:3] += 10
    a[:, 1:3] += 10
    x[:, 0] = -1
    a[:, 0] = -1
    x[:, 4:] = row.redistribute("R")[4:]
    a[:, 4:] = np.arange(4, 6)
    x[..., 3] = x[..., 2]
    a[..., 3] = a[..., 2]
    np.testing.assert_array_equal(x.full().numpy(), a)
    x[...] = row
    np.testing.assert_array_equal(x.full().numpy(), np.tile(np.arange(6.0), (4, 1)))
    x[...] = 10**20
    assert x.max().item() == 1e20
    x[...] = row
    truths = x > 2
    truths[:, 0] = 1
    assert truths.sum().item() == 4 + 3 * 4 and str(truths.dtype) == "bool"
    rows = session.distribute(np.arange(6.0), mesh, "R")
    rows[1:] = rows[:-1]
    rows[1:] += rows[:-1]
    assert list(rows.full().numpy()) == [0, 0, 1, 3, 5, 7]
    terms = session.distribute(a, mesh, "P")
    terms[...] = x
    np.testing.assert_array_equal(terms.full().numpy(), x.full().numpy())
    assert str(terms.placement) == "P"
    for wrong, why in [(lambda: terms.__setitem__(..., 1), "partial"), (lambda: x.__setitem__(..., 1j), "can't be written"), (lambda: x.__setitem__((slice(None), 0), x), "shape"),
                       (lambda: x.astype("int8").__setitem__(..., 0.5), "0.5 can't be written"), (lambda: x.__setitem__(..., a), "got an array"),
                       (lambda: x.astype("int8").__setitem__(..., 300), "300 can't be written"), (lambda: truths.__setitem__(..., 2), "2 can't be written")]:
        with pytest.raises(tutti.UsageError, match=why):
            wrong()


def test_tensors_of_their_own(session):
    x = session.distribute(np.arange(4.0), DeviceMesh(WORKERS), "S[0]")
    for same in (x.astype("float64"), x.copy(), +x, np.copy(x)):
        same += 1
    assert list(x.full().numpy()) == [0, 1, 2, 3] and x.astype("float64", copy=False) is x
    terms = session.distribute(np.arange(4.0), DeviceMesh(WORKERS), "P")
    assert str(terms.copy().placement) == "P" and (terms.copy() == x).all().item()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_terms_of_a_sum_and_numbers(session):
    """Times a number that makes terms larger, or that the dtype can't hold, partial values are added up first."""
    mesh = DeviceMesh(WORKERS)
    ones = session.distribute(np.ones(3, "float32"), mesh, "P")
    assert set((ones / np.float32(1e-45)).full().numpy()) == {np.inf} and set((ones / 0).full().numpy()) == {np.inf}
    assert set((ones * np.inf).full().numpy()) == {np.inf} and set((ones / 1e-46).full().numpy()) == {np.inf}
    assert str((ones * 2).placement) == "R" and str((ones / 2).placement) == str((ones * -1).placement) == "P"
    assert str((session.distribute(np.ones(3, "int32"), mesh, "P") * 2).placement) == "P"
    if WORKERS < 4:
        return

    @session.define
    def one_of(terms, _):
        return np.array([terms[tutti.worker.id()] if tutti.worker.id() < len(terms) - 1 else 0], terms[-1])

    def partial(terms, dtype, placement):
        return session.shard_map(one_of, mesh, [None, "R"], placement)([*terms, dtype], ones.redistribute("R"))

    parts = partial([1.0, 3.0], "float64", "P")
    for got, expected in [(2 / parts, 0.5), (parts * parts, 16), (np.square(parts), 16), (np.exp(parts), np.exp(4)), (parts + 1, 5), (np.maximum(parts, parts), 4),
                          (parts @ parts, 16), (parts * 0.5 + parts, 6), (parts > 3, True), (parts.sum(), 4), (parts.prod(), 4), (abs(-parts), 4)]:
        assert got.full().numpy() == expected
    large = partial([60000.0, -60000.0], "float16", "P")
    assert (large * 2).full().numpy() == 0 and np.isnan((large + large).full().numpy())  # the guide says so
    if WORKERS == 4:
        average = partial([1, 2, 2, 2], "int64", "P(avg)")
        assert average.full().numpy() == 1 and (average + average).full().numpy() == 2 and (average * 2).full().numpy() == 2


def test_numpy_s_functions_by_name(session):
    a = np.arange(-3.0, 5.0)
    x = session.distribute(a, DeviceMesh(WORKERS), "S[0]")
    assert (np.sum(x).item(), np.amax(x).item(), np.shape(x), np.ndim(x), np.size(x), x.size) == (4, 4, (8,), 1, 8, 8)
    np.testing.assert_array_equal(np.clip(x, -1, 2).full().numpy(), np.clip(a, -1, 2))
    np.testing.assert_array_equal(np.clip(a=x, a_min=-1, a_max=2).full().numpy(), np.clip(a, -1, 2))
    assert (np.sum(a=x, axis=0).item(), np.transpose(x, axes=(0,)).shape, np.maximum.reduce(x).item()) == (4, (8,), 4)
    assert (float(x.sum()), int(x.max()), f"{x.mean():.2f}", f"{x}") == (4.0, 4, "0.50", repr(x))
    assert (np.mean(x, dtype="int32").dtype, np.mean(x, 0).item()) == ("int32", 0.5)
    for call, why in [(lambda: np.where(x > 0, x, 0), "numpy.where: not built"), (lambda: np.array_equal(x, x), "numpy.array_equal"), (lambda: np.dot(x, x), "numpy.dot"),
                      (lambda: np.linalg.norm(x), "numpy.linalg.norm"), (lambda: np.sum(x, initial=3), "numpy.sum: got an unexpected keyword argument 'initial'"),
                      (lambda: np.maximum.reduce(x, dtype="float32"), "maximum.reduce: dtype="), (lambda: x.sum(dtype="bfloat16"), "sum: numpy has no bfloat16"),
                      (lambda: x == a, "equal: expected DTensors and numbers"), (lambda: x.item(), "item: the tensor has 8 elements"), (lambda: x.sum(axis="a"), "sum: axis: expected"),
                      (lambda: x.sum(axis=1.0), "sum: axis: expected"), (lambda: x.astype("bfloat16"), "astype: numpy has no bfloat16"), (lambda: np.frexp(x), "it has 2 results")]:
        with pytest.raises(tutti.UsageError, match=why):
            call()
    with pytest.raises(TypeError):
        pow(x, 2, 3)
    with pytest.raises((tutti.UsageError, OverflowError), match="add: the result's dtype would be object: 10+ is out of range|too large"):
        x.astype("int32") + 10**30
    large = session.distribute(np.array([1], "uint64"), DeviceMesh(WORKERS), "R")
    assert (large + np.uint64(2**63)).item() == 2**63 + 1

    class Other:
        def __radd__(self, other):
            return "other's"

    assert x + Other() == "other's"


def test_nothing_moves_where_tensor_parallelism_moves_nothing(session):
    if WORKERS == 1:
        return  # there is nowhere to move
    mesh = DeviceMesh((WORKERS // 2, 2), names=["data", "tensor"])

    def made(shape, placement):
        return session.distribute(np.ones(shape, "float32"), mesh, placement)

    x = made((8, 6), "S[0], R")
    hidden = np.maximum(x @ made((6, 4), "R, S[1]") + made(4, "R, S[0]"), 0)  # columns of the first layer
    assert str(hidden.placement) == "S[0], S[1]"
    y = hidden @ made((4, 6), "R, S[0]")  # rows of the second one
    assert str(y.placement) == "S[0], P"
    assert str((y + x).placement) == "S[0], P"  # and the sum of it is put off
    assert str((0.5 * y).placement) == "S[0], P" and str((y / 3 - y).placement) == "S[0], P"
    assert str(y.mean(axis=1).placement) == "S[0], P" and str(x.sum(axis=0).placement) == "P, R"
    gradient = hidden.T @ y.redistribute("S[0], R")  # of the second layer's weights: summed over the images
    assert str(gradient.placement) == "P, S[0]"
    assert str(np.tanh(y).placement) == "S[0], R"
    assert str(x.max(axis=0).placement) == "P(max), R"
    truths = session.distribute(np.ones((2, 1000), "bool"), mesh, "S[0], R")
    assert str(truths.sum(axis=0).placement) == "P, R"  # although the sums are larger than what they are made of
    assert str((made((64, 8), "S[0], R") @ made((8, 64), "S[0], R")).placement) == "S[0], R"  # terms of a large product would move more
    assert bytes_moved(x.info, x.info) == 0 and bytes_moved(x.info, x.redistribute("R, R").info) == 8 * 6 * 4 * (WORKERS // 2 - 1) * 2


@pytest.mark.parametrize("wrong, why", [
    (lambda x, y: x + np.ones((4, 6)), r"add: expected DTensors and numbers, got an array of shape \(4, 6\)"),
    (lambda x, y: [1] * x, "multiply: expected DTensors and numbers, got list"),
    (lambda x, y: x + y, r"do not fit: axis -1 has 5 and 6"),
    (lambda x, y: x @ x, r"matmul: shapes \(4, 6\) and \(4, 6\) do not fit: 6 columns, 4 rows"),
    (lambda x, y: x @ 2, "matmul: expected two DTensors, got 2"),
    (lambda x, y: x @ x.sum(), "matmul: a tensor without axes"),
    (lambda x, y: np.add(x, 1, where=False), r"add.__call__\(where\): not built for DTensors"),
    (lambda x, y: np.add.accumulate(x), "add.accumulate"),
    (lambda x, y: np.modf(x), "modf: it has 2 results"),
    (lambda x, y: np.add(x, 1, out=np.zeros((4, 6))), "add: expected a DTensor to write to, got ndarray"),
    (lambda x, y: np.add(x, 1, out=y), r"the result has shape \(4, 6\)"),
    (lambda x, y: np.add(x, 1j, out=x), "the result has dtype complex128"),
    (lambda x, y: x.sum(axis=2), "sum: axis 2 of a tensor of 2 axes"),
    (lambda x, y: x.sum(axis=(0, 0)), r"sum: axis \(0, 0\)"),
    (lambda x, y: x.sum(out=y), "sum: DTensors are not reduced into another one"),
    (lambda x, y: (x * 1j).max(), "max: complex numbers have no order"),
    (lambda x, y: x.transpose(0, 0), r"transpose: axes \(0, 0\)"),
    (lambda x, y: map_parts("a.function", [1], x.info), "a.function: no argument is a DTensor"),
    (lambda x, y: x + x.redistribute("R", DeviceMesh((1,), [0])) if WORKERS > 1 else x + y, "add: one tensor lies on|do not fit"),
])
def test_what_is_wrong(session, wrong, why):
    mesh = DeviceMesh(WORKERS)
    x = session.distribute(np.ones((4, 6)), mesh, "S[0]")
    with pytest.raises(tutti.UsageError, match=why):
        wrong(x, session.distribute(np.ones(5), mesh, "R"))
    assert (x + x).sum().item() == 48


def test_what_goes_wrong_on_a_worker(session):
    mesh = DeviceMesh(WORKERS)
    x = session.distribute(np.arange(8.0), mesh, "S[0]")
    lost = map_parts("no.such.function", [x], x.info)
    with pytest.raises(tutti.RemoteError, match="no.such.function"):
        session.sync_all()
    assert (2 * x).sum().item() == 56
    with pytest.raises(tutti.RemoteError):
        lost += 1
        session.sync_all()
    assert (2 * x).sum().item() == 56
