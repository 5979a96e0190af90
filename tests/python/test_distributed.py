"""Sharded tensors against numpy: random chains of placements and meshes, on every kind of session and number of workers."""

import os
import random
import time
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import WORKERS, make_session

import tutti
from tutti import distributed
from tutti.distributed import DeviceMesh, DTensor, DTensorStructInfo, Placement, PlacementSpec, TensorStructInfo, bytes_moved, explain, peak_bytes, relabelled

CASES = int(os.environ.get("TUTTI_TEST_PROGRAMS", "40"))
DTYPES = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128", "bool"]


def some_mesh(draw):
    """Any mesh of 1 to 3 dimensions over some of the workers, in any order."""
    shape = [draw.randint(1, WORKERS) for _ in range(draw.randint(1, 3))]
    while np.prod(shape) > WORKERS:
        shape[draw.randrange(len(shape))] = draw.randint(1, 2)
    workers = list(range(WORKERS))
    draw.shuffle(workers)
    return DeviceMesh(shape, workers[: int(np.prod(shape))])


def some_placement(draw, mesh, shape, dtype):
    specs, cut, ops = [], set(), ["sum", "prod", "min", "max"]
    op = draw.choice({"bool": ["min", "max"], "complex64": ["sum"], "complex128": ["sum"]}.get(dtype, ops))
    for workers in mesh.shape:
        kind = draw.choice(["R", "P", "S", "ragged"])
        axis = draw.randrange(len(shape)) if shape else None
        if kind == "P":
            specs.append(PlacementSpec.partial(op))
        elif kind == "R" or axis is None:
            specs.append(PlacementSpec.replica())
        elif kind == "S" or axis in cut:
            specs.append(PlacementSpec.sharding(axis))
            cut.add(axis)
        else:
            ends = sorted(draw.randint(0, shape[axis]) for _ in range(workers - 1))
            specs.append(PlacementSpec.ragged(axis, np.diff([0, *ends, shape[axis]]).tolist()))
            cut.add(axis)
    return Placement(specs)


def is_partial(placement):
    return "P" in str(placement)


def part_of(array, info, worker):
    shape, offset = info.local(worker)
    return array[tuple(slice(begin, begin + extent) for begin, extent in zip(offset, shape))]


def some_array(seed, shape, dtype):
    """Any bits: every value of an integer, zeros of both signs, infinities. No NaN: min and max may change its bits."""
    random_bits = np.random.default_rng(seed).bytes(max(int(np.prod(shape)), 1) * np.dtype(dtype).itemsize)
    array = np.frombuffer(random_bits, dtype if dtype != "bool" else "uint8")[: int(np.prod(shape))].reshape(shape).copy()
    if dtype == "bool":
        return array % 2 == 1
    if not np.issubdtype(dtype, np.integer):
        array[np.isnan(array)] = -0.0
    return array


def same(came, expected, what):
    assert (came.dtype, came.shape) == (expected.dtype, expected.shape), what
    assert came.tobytes() == np.ascontiguousarray(expected).tobytes(), what


def check(tensor, array, what):
    if not is_partial(tensor.placement):
        for worker in tensor.mesh.device_ids:
            same(tensor.parts.debug_get_from_remote(worker).numpy(), part_of(array, tensor.info, worker), what)
    for worker in set(range(WORKERS)) - set(tensor.mesh.device_ids):
        assert tensor.parts.debug_get_from_remote(worker) is None, what
    same(tensor.full().numpy(), array, what)


def test_chains_of_any_placements(session):
    for seed in range(CASES):
        draw = random.Random(seed)
        shape = tuple(draw.randint(0, 9) for _ in range(draw.randint(0, 4)))
        dtype = draw.choice(DTYPES)
        array = some_array(seed, shape, dtype)
        mesh = some_mesh(draw)
        tensor = session.distribute(array, mesh, some_placement(draw, mesh, shape, dtype))
        told = f"seed {seed}: {tensor!r}"
        check(tensor, array, told)
        for _ in range(draw.randint(1, 3)):
            mesh = tensor.mesh if draw.random() < 0.5 else some_mesh(draw)
            tensor = tensor.redistribute(some_placement(draw, mesh, shape, dtype), mesh)
            told += f" -> {tensor!r}"
            check(tensor, array, told)


def test_chains_of_large_tensors(session):
    """Parts of 64 KiB and more: workers read them where they lie."""
    for seed in range(CASES // 8):
        draw = random.Random(seed)
        shape = (draw.randint(100, 400), draw.randint(100, 400), draw.randint(4, 8))[: draw.randint(2, 3)]
        dtype = draw.choice(["float32", "int64", "float16"])
        array = np.random.default_rng(seed).integers(-5, 6, shape).astype(dtype)
        mesh = some_mesh(draw)
        tensor = session.distribute(array, mesh, some_placement(draw, mesh, shape, "bool"))  # min and max: any order of elements gives the same
        for _ in range(3):
            mesh = tensor.mesh if draw.random() < 0.5 else some_mesh(draw)
            tensor = tensor.redistribute(some_placement(draw, mesh, shape, "bool"), mesh)
            check(tensor, array, f"seed {seed}: {tensor!r}")


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
def test_partial_values_are_reduced(session, op, dtype):
    """Each worker has values of its own. The large one is reduced by parts, from 3 workers on."""
    for shape in [(), (3,), (70, 90), (401, 67 * WORKERS)]:
        arrays = [np.random.default_rng(worker).integers(1, 3, shape).astype(dtype) for worker in range(WORKERS)]
        parts = session.empty((1,), "int8")
        for worker in range(WORKERS):
            parts.debug_copy_from(worker, arrays[worker])
        mesh = DeviceMesh((WORKERS,))
        tensor = DTensor(parts, DTensorStructInfo(TensorStructInfo(shape, dtype), mesh, Placement([PlacementSpec.partial(op)])))
        reduced = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "avg": np.sum}[op](np.stack(arrays).astype("float64"), axis=0)
        if op == "avg":
            reduced = reduced / WORKERS if dtype != "int32" else np.trunc(reduced / WORKERS)
        expected = np.asarray(reduced).astype(dtype)
        for placement in ["R", "S[0]"] if shape else ["R"]:
            check(tensor.redistribute(placement), expected, f"{op} of {dtype} {shape} to {placement}")
        np.testing.assert_array_equal(tensor.redistribute("P" if op == "sum" else f"P({op})").full().numpy(), expected)


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
def test_partial_values_of_two_dimensions(session, op):
    """Each worker has values of its own; one dimension after the other is reduced, or both at once."""
    mesh = DeviceMesh((2, WORKERS // 2) if WORKERS % 2 == 0 else (1, WORKERS), list(range(WORKERS))[::-1])
    arrays = [np.random.default_rng(worker).integers(-3, 4, (5, 6)).astype("int32") for worker in range(WORKERS)]
    parts = session.empty((1,), "int8")
    for worker in range(WORKERS):
        parts.debug_copy_from(worker, arrays[worker])
    of_op = "P" if op == "sum" else f"P({op})"
    tensor = DTensor(parts, DTensorStructInfo(TensorStructInfo((5, 6), "int32"), mesh, Placement.from_text(f"{of_op}, {of_op}")))
    all_of_them = np.stack(arrays)
    expected = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}.get(op, lambda a, axis: np.trunc(np.sum(a, axis) / WORKERS))(all_of_them, axis=0).astype("int32")
    check(tensor, expected, op)
    for placement in ["R, R", "S[0], S[1]", "S[1], R", "R, S[1]"]:
        check(tensor.redistribute(placement), expected, f"{op} to {placement}")
        if op != "avg":
            for step in [f"R, {of_op}", f"{of_op}, S[0]", f"S[1], {of_op}"]:
                between = tensor.redistribute(step)
                check(between, expected, f"{op} to {step}")
                check(between.redistribute(placement), expected, f"{op} to {step} to {placement}")
    if op == "avg" and WORKERS % 2 == 0:
        with pytest.raises(tutti.UsageError, match="rounded again"):
            tensor.redistribute(f"R, {of_op}")


def test_workers_outside_may_have_anything(session):
    """What is not in the mesh is not looked at."""
    parts = session.get_global_func("test.add")(1, 2)
    parts.debug_copy_from(0, np.arange(6, dtype="int32"))
    whole = DTensor(parts, DTensorStructInfo(TensorStructInfo((6,), "int32"), DeviceMesh(1), Placement.from_text("R")))
    check(whole.redistribute("S[0]", DeviceMesh(WORKERS)), np.arange(6, dtype="int32"), "from worker 0")
    check(whole.redistribute("R", DeviceMesh(WORKERS)), np.arange(6, dtype="int32"), "from worker 0, to all")


def test_workers_may_be_relabelled(session):
    array = np.arange(40, dtype="int64")
    tensor = session.distribute(array, DeviceMesh(WORKERS), "S[0]")
    turned = DeviceMesh(WORKERS, list(range(WORKERS))[::-1])
    same = tensor.redistribute("S[0]", turned, relabel=True)
    assert same.mesh == relabelled(tensor.info, tensor.redistribute("S[0]", turned).info) == DeviceMesh(WORKERS)
    assert bytes_moved(tensor.info, same.info) == 0
    np.testing.assert_array_equal(same.full().numpy(), array)


def test_an_array_may_change_at_once(session):
    array = np.arange(24, dtype="float32").reshape(6, 4)
    tensor = session.distribute(array, DeviceMesh((WORKERS,)), "S[0]")
    array[:] = 0
    np.testing.assert_array_equal(tensor.full().numpy(), np.arange(24).reshape(6, 4))
    assert (tensor.shape, tensor.dtype, str(tensor.placement)) == ((6, 4), "float32", "S[0]")
    other = session.distribute(np.asfortranarray(np.arange(24).reshape(6, 4)), DeviceMesh((WORKERS,)), Placement.from_text("S[1]"))
    np.testing.assert_array_equal(other.full().numpy(), np.arange(24).reshape(6, 4))
    replicas = tensor.redistribute("R").info
    assert explain(tensor.info, replicas).count("\n") == 3 and peak_bytes(tensor.info, replicas) >= 6 * 4 * 4


def some_slices(draw, tensor):
    """Of axes that at most one mesh dimension cuts; all of the others."""
    axes = [spec.axis for spec in tensor.placement.dim_specs]
    cut = {axis for axis in axes if axes.count(axis) > 1}
    key = []
    for axis, extent in enumerate(tensor.shape):
        if axis in cut or draw.random() < 0.3:
            key.append(slice(None))
        elif extent and draw.random() < 0.4:
            key.append(draw.randrange(-extent, extent))
        else:
            key.append(slice(draw.randint(-extent - 1, extent + 1), draw.randint(-extent - 1, extent + 1), draw.choice([None, 1, 2, 3])))
    return tuple(key)


def test_slices(session):
    for seed in range(CASES):
        draw = random.Random(seed)
        shape = tuple(draw.randint(0, 9) for _ in range(draw.randint(1, 4)))
        mesh = some_mesh(draw)
        array = some_array(seed, shape, "int32")
        tensor = session.distribute(array, mesh, some_placement(draw, mesh, shape, "int32"))
        key = some_slices(draw, tensor)
        check(tensor[key], array[key], f"seed {seed}: {tensor!r}[{key}]")


def test_slices_of_a_cut_axis_stay_where_they_are(session):
    array = np.arange(48).reshape(12, 4)
    tensor = session.distribute(array, DeviceMesh(WORKERS), "S[0]")
    part = tensor[2:9:3]
    assert part.placement.dim_specs[0].axis == 0 and bytes_moved(part.info, part.redistribute(part.placement).info) == 0
    sizes = [len([row for row in (2, 5, 8) if begin <= row < begin + rows]) for (rows, _), (begin, _) in (tensor.local(w) for w in range(WORKERS))]
    assert [part.local(w)[0][0] for w in range(WORKERS)] == sizes
    assert tensor[:].placement == tensor.placement and tensor[3].placement == Placement.from_text("R")
    tensor[5:] = -1
    array[5:] = -1
    same(tensor.full().numpy(), array, "written through a view")
    same(part.full().numpy(), array[2:9:3], "seen by it")
    tensor[3] = 0
    array[3] = 0
    tensor[-1] += 5
    array[-1] += 5
    tensor[2, 1:3] = 9
    array[2, 1:3] = 9
    turned = tensor.redistribute("S[1]")
    turned[:, -1] = 4
    array[:, -1] = 4
    same(turned.full().numpy(), array, "a column")
    tensor = turned.redistribute("S[0]")
    for wrong in [12, -13]:
        with pytest.raises(IndexError):
            tensor[wrong] = 1
    tensor[3:4] = 7
    array[3] = 7
    same(tensor.full().numpy(), array, "one row")


def test_what_can_t_be_sliced(session):
    tensor = session.distribute(np.arange(12).reshape(3, 4), DeviceMesh((WORKERS,)), "S[0]")
    for key, error, why in [((..., 4), IndexError, "index 4 of axis 1"), ((..., "x"), tutti.UsageError, "got str"),
                            ((..., True), tutti.UsageError, "got bool"), ((..., np.True_), tutti.UsageError, "got numpy.bool"),
                            ((..., np.array([2, 0])), tutti.UsageError, "got numpy.ndarray"), ((..., np.array([], int)), tutti.UsageError, "got numpy.ndarray"),
                            ((..., slice(None, None, -1)), tutti.UsageError, "backwards"), ((0, 0, 0), tutti.UsageError, "2 axes"),
                            ((..., ...), tutti.UsageError, "2 axes")]:
        with pytest.raises(error, match=why):
            tensor[key]
    same(tensor[..., 1:3].full().numpy(), np.arange(12).reshape(3, 4)[:, 1:3], "after errors")
    same(tensor[..., np.int64(-1)].full().numpy(), np.arange(12).reshape(3, 4)[:, -1], "numpy's integer")
    twice = session.distribute(np.arange(12).reshape(3, 4), DeviceMesh((1, WORKERS)), "S[0], S[0]")
    for key in [0, slice(1, 2)]:
        with pytest.raises(tutti.UsageError, match="mesh dimension 0 and mesh dimension 1 both cut axis 0"):
            twice[key]
    for wrong in [np.asarray, bool, lambda x: session.distribute(x, x.mesh, "R")]:
        with pytest.raises(TypeError):
            wrong(tensor)
    assert len(tensor) == 3


def test_new_tensors_do_not_depend_on_the_mesh(session):
    for seed in range(CASES // 2):
        draw = random.Random(seed)
        shape = tuple(draw.randint(0, 9) for _ in range(draw.randint(0, 4)))
        dtype = draw.choice(DTYPES)
        expected = distributed.random(session, shape, DeviceMesh(1), "R", dtype, seed).full().numpy()
        mesh = some_mesh(draw)
        placement = some_placement(draw, mesh, shape, dtype)
        check(distributed.random(session, shape, mesh, placement, dtype, seed), expected, f"seed {seed}: {placement}")
        number = draw.choice([0, 1, True])
        check(distributed.full(session, shape, number, mesh, placement, dtype), np.full(shape, number, dtype), f"seed {seed}")
        check(distributed.zeros(session, shape, mesh, placement, dtype), np.zeros(shape, dtype), f"seed {seed}")
        assert distributed.empty(session, shape, mesh, placement, dtype).full().shape == shape
    with pytest.raises(tutti.UsageError, match="an element of int8 can't be int 128"):
        distributed.full(session, 3, 128, DeviceMesh(1), "R", "int8")


def test_parts_say_what_the_tensor_is(session):
    for seed in range(CASES):
        draw = random.Random(seed)
        shape = tuple(draw.randint(1, 9) for _ in range(draw.randint(0, 4)))
        mesh = some_mesh(draw)
        tensor = session.distribute(some_array(seed, shape, "int16"), mesh, some_placement(draw, mesh, shape, "int16"))
        bare = str(tensor.placement)
        while "](" in bare:  # without sizes
            begin = bare.index("](") + 1
            bare = bare[:begin] + bare[bare.index(")", begin) + 1:]
        found = DTensor.from_local(tensor.parts, mesh, bare)
        assert (found.shape, found.dtype) == (tensor.shape, tensor.dtype), f"seed {seed}: {tensor!r}"
        assert all(found.local(worker) == tensor.local(worker) for worker in mesh.device_ids), f"seed {seed}: {tensor!r}, {found!r}"


def test_a_function_on_shards(session):
    """Rows of one matrix times columns of another: the contracted axis is cut, so that products are partial."""
    a, b = (np.random.default_rng(seed).integers(-9, 9, shape).astype("float64") for seed, shape in [(1, (7, 9)), (2, (9, 5))])
    rows = 2 if WORKERS % 2 == 0 else 1
    mesh = DeviceMesh((rows, WORKERS // rows), names=["data", "tensor"])
    x, w = session.distribute(a, mesh, "R, R"), session.distribute(b, mesh, "S[1], R")
    matmul = session.get_global_func("test.matmul")
    partial = session.shard_map(matmul, mesh, ["S[0], S[1]", "R, S[0]"], "S[0], P")
    same(partial(x, w).full().numpy(), a @ b, "partial")
    same(partial(x, w, out_sinfos=TensorStructInfo((7, 5), "float64")).full().numpy(), a @ b, "told")
    summed = session.shard_map("test.matmul_along", mesh, ["S[0], S[1]", "R, S[0]", None], ["S[0], R"])
    [result] = summed(x, w, "tensor")
    assert str(result.placement) == "S[0], R"
    check(result, a @ b, "summed up along a mesh dimension")
    parts = session.shard_map("test.matmul", mesh, ["S[0], R", "R, R"], None)(x, w)
    assert parts.debug_get_from_remote(0).shape == (x.redistribute("S[0], R").local(0)[0][0], 5)
    assert session.get_global_func("test.extent")(x).debug_get_from_remote(0) == 7  # a DTensor as an argument: each worker's part


def test_large_results_in_numpy_s_memory(session):
    """Other processes can't reach it. Some workers have little, or nothing."""
    array = np.random.default_rng(3).integers(-9, 9, (60 * WORKERS, 1200)).astype("float64")
    mesh = DeviceMesh(WORKERS)
    copy = session.shard_map("test.matmul", mesh, ["S[0]", "R"], "S[0]")
    y = copy(session.distribute(array, mesh, "S[0]"), session.distribute(np.eye(1200), mesh, "R"))
    for placement in ["S[1]", "R", PlacementSpec.ragged(0, [1] * (WORKERS - 1) + [60 * WORKERS - WORKERS + 1]), "S[0]"]:
        placement = Placement([placement]) if isinstance(placement, PlacementSpec) else placement
        z = y.redistribute(placement)
        check(z, array, f"{placement}")
        check(z.redistribute("S[1]"), array, f"{placement} to S[1]")


def test_a_shipped_function_on_shards(session):
    pytest.importorskip("cloudpickle")
    array = np.arange(-10, 10).reshape(10, 2)
    x = session.distribute(array, DeviceMesh(WORKERS), "S[0]")
    positive = session.shard_map(lambda part: part.numpy()[part.numpy()[:, 0] > 0], DeviceMesh(WORKERS), "S[0]", "S[0]")
    found = positive(x)
    check(found, array[array[:, 0] > 0], "ragged")
    low, high = session.shard_map(lambda part: (part.numpy() - 1, part.numpy() + 1), DeviceMesh(WORKERS), "S[0]", ["S[0]", "S[0]"])(found)
    check(low, array[array[:, 0] > 0] - 1, "low")
    check(high, array[array[:, 0] > 0] + 1, "high")


def test_a_function_on_shards_that_fails(session):
    x = session.distribute(np.arange(10), DeviceMesh(WORKERS), "S[0]")
    fails = session.shard_map("test.fail_on", DeviceMesh(WORKERS), ["S[0]", None], "S[0]")
    begun = time.monotonic()
    with pytest.raises(tutti.RemoteError, match="fails on purpose") as error:
        fails(x, WORKERS - 1)
    assert [failure.worker for failure in error.value.failures] == [WORKERS - 1] and time.monotonic() - begun < 10
    check(fails(x, -1), np.arange(10), "goes on")
    with pytest.raises(tutti.UsageError, match="1 arguments, but in_placements has 2"):
        fails(x)
    with pytest.raises(tutti.UsageError, match=r"argument 0 is no DTensor, but in_placements\[0\] is 'S\[0\]'"):
        fails(3, 3)
    with pytest.raises(tutti.UsageError, match="expected a Placement or its text"):
        session.shard_map("test.fail_on", DeviceMesh(WORKERS), [3], "R")
    with pytest.raises(tutti.UsageError, match="in_placements: expected a list of placements, or one, got NoneType"):
        session.shard_map("test.fail_on", DeviceMesh(WORKERS), None, "R")
    with pytest.raises(tutti.UsageError, match="out_sinfos: expected a TensorStructInfo for each result, got int"):
        fails(x, -1, out_sinfos=3)
    slow = session.shard_map("test.slow", DeviceMesh(WORKERS), ["S[0]"], "S[0]")
    with pytest.raises(tutti.TimeoutError):
        slow(x, timeout=0)
    check(slow(x, timeout=60), np.arange(10), "later")
    with pytest.raises(tutti.RemoteError, match="test.no_such"):
        session.shard_map("test.no_such", DeviceMesh(WORKERS), ["S[0]"], "S[0]")(x)
    with pytest.raises(tutti.RemoteError, match="expected a list of 2"):
        session.shard_map("test.fail_on", DeviceMesh(WORKERS), ["S[0]", None], ["S[0]", "R"])(x, -1)
    with pytest.raises(tutti.UsageError, match="runs no function that a shard_map calls"):
        distributed.shard_context()
    check(x, np.arange(10), "as it was")


def test_pictures(session):
    x = session.distribute(np.zeros((8, 6), "float32"), DeviceMesh(WORKERS), "S[0]")
    table = repr(x.show())
    assert table.splitlines()[1].split() == ["worker", "place", "shape", "offset", "bytes"] and len(table.splitlines()) == WORKERS + 2
    assert sum(int(line.split()[-1]) for line in table.splitlines()[2:]) == 8 * 6 * 4
    for placement, cells in [("S[0]", WORKERS), ("R", 1), ("P", 1), ("S[1](" + ", ".join(["6"] + ["0"] * (WORKERS - 1)) + ")", 1)]:
        picture = ElementTree.fromstring(x.redistribute(placement).show().svg())
        assert len(picture.findall(".//{http://www.w3.org/2000/svg}rect")) == min(cells, 8), placement
    assert "<table>" in x.show().html() and "<svg" in x.show()._repr_html_()
    for shape in [(), (0, 3), (2, 3, 4)]:
        ElementTree.fromstring(session.distribute(np.zeros(shape), DeviceMesh(WORKERS), "R").show().svg())


def test_what_is_wrong_is_told_at_once(session):
    tensor = session.distribute(np.zeros((4, 4)), DeviceMesh((WORKERS,)), "R")
    with pytest.raises(tutti.UsageError, match="is not in this session"):
        session.distribute(np.zeros(4), DeviceMesh((1,), [WORKERS]), "R")
    with pytest.raises(tutti.UsageError, match="is not in this session"):
        tensor.redistribute("R", DeviceMesh((1,), [WORKERS]))
    with pytest.raises(tutti.UsageError, match="cuts axis 2"):
        tensor.redistribute("S[2]")
    with pytest.raises(tutti.UsageError, match="position 0"):
        tensor.redistribute("X")
    with pytest.raises(tutti.UsageError, match="expected a Placement or its text, such as 'S\\[0\\], R', got list"):
        tensor.redistribute(["S[0]"])
    assert tensor.full().numpy().shape == (4, 4)


def test_a_part_that_is_not_as_told(session):
    """One worker's part has another shape: an error that names it; the session goes on."""
    parts = session.empty((4,), "float32")
    parts.debug_copy_from(WORKERS - 1, np.zeros(3, "float32"))
    tensor = DTensor(parts, DTensorStructInfo(TensorStructInfo((4,)), DeviceMesh((WORKERS,)), Placement.from_text("R")))
    mine = DTensorStructInfo(TensorStructInfo((4 * WORKERS,)), DeviceMesh((WORKERS,)), Placement.from_text("S[0]"))
    with pytest.raises(tutti.RemoteError, match=rf"worker {WORKERS - 1}'s part of .* is float32 of shape \(3,\), expected float32 of shape \(4,\)"):
        DTensor(tensor.parts, mine).full()
    np.testing.assert_array_equal(session.distribute(np.arange(5), DeviceMesh((WORKERS,)), "S[0]").full().numpy(), np.arange(5))


@pytest.mark.skipif(WORKERS < 2, reason="one worker has no other")
def test_a_failure_elsewhere_leaves_the_source(session):
    """The one who has all sends it to all: a broadcast, of which its own tensor is the source."""
    array = np.arange(6, dtype="int32")
    whole = session.distribute(array, DeviceMesh(1), "R")
    for _ in range(2):
        session.get_global_func("test.fail")(WORKERS - 1)
        with pytest.raises(tutti.RemoteError, match="fails"):
            whole.redistribute("R", DeviceMesh(WORKERS)).full()
        same(whole.full().numpy(), array, "after a failure")
    same(whole.redistribute("R", DeviceMesh(WORKERS)).full().numpy(), array, "again")
    other = session.distribute(array, DeviceMesh(1, [WORKERS - 1]), "R")
    session.get_global_func("test.fail")(0)
    with pytest.raises(tutti.RemoteError, match="fails"):
        other.full()
    same(other.full().numpy(), array, "after a failure of the receiver")


def test_parts_that_are_no_tensors(session):
    parts = session.get_global_func("test.add")(1, 2)
    with pytest.raises(tutti.RemoteError, match=r"worker 0's part of int32 \(6,\) by 'R' on .* is int 3, expected int32 of shape"):
        DTensor(parts, DTensorStructInfo(TensorStructInfo((6,), "int32"), DeviceMesh(1), Placement.from_text("R"))).full()


def test_a_session_that_has_ended():
    with make_session() as session:
        tensor = session.distribute(np.zeros(4), DeviceMesh((WORKERS,)), "R")
    with pytest.raises(tutti.UsageError):
        tensor.redistribute("S[0]")
