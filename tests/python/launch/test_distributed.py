"""The words of sharded tensors, as TVM's tests of them use them."""

import doctest
import pathlib
import pickle
import re

import numpy as np
import pytest

import tutti
from tutti.distributed import DeviceMesh, DTensorStructInfo, DTensorType, Placement, PlacementSpec, PlacementSpecKind, TensorStructInfo, device_mesh, shard_context

VALUES = [
    DeviceMesh((2, 2), range(4)),
    DeviceMesh((2, 3), [5, 4, 3, 2, 1, 0], names=["data", "tensor"]),
    DeviceMesh(3),
    PlacementSpec.sharding(1),
    PlacementSpec.replica(),
    PlacementSpec.partial(),
    PlacementSpec.partial("max"),
    PlacementSpec.ragged(0, [3, 0, 5]),
    Placement([PlacementSpec.sharding(0), PlacementSpec.replica()]),
    Placement.from_text("S[0](3, 5), P"),
    TensorStructInfo((8, 6), "bfloat16"),
    TensorStructInfo((), "int8"),
    DTensorStructInfo(TensorStructInfo((8, 6)), DeviceMesh((2, 2), [3, 2, 1, 0]), Placement.from_text("S[0], R")),
]


def test_values_are_values():
    """A repr makes an equal value again, and so does pickle; no two of the list are equal."""
    for value in VALUES:
        again = eval(repr(value))  # noqa: S307
        assert again == value and hash(again) == hash(value) and again is not value
        assert pickle.loads(pickle.dumps(value)) == value
        assert value != 1 and not value == "x"
    assert len(set(VALUES)) == len(VALUES)
    with pytest.raises(AttributeError):
        VALUES[0].shape = (4,)
    VALUES[0].device_ids.clear()
    assert VALUES[0].device_ids == [0, 1, 2, 3]


def test_device_mesh():
    assert device_mesh((2, 2), range(4)) == DeviceMesh((2, 2), [0, 1, 2, 3]) == DeviceMesh((2, 2))
    mesh = DeviceMesh([2, 3], range(6), names=("data", "tensor"))
    assert (mesh.shape, mesh.ndim, mesh.size, mesh.names) == ((2, 3), 2, 6, ("data", "tensor"))
    assert mesh.dim("tensor") == 1
    assert (mesh.worker((1, 2)), mesh.coordinate(5), mesh.coordinate(6)) == (5, (1, 2), None)


def test_placement():
    """relax.distributed: kinds and their numbers, from_text, str."""
    assert (PlacementSpecKind.kSharding, PlacementSpecKind.kReplica) == (0, 1) and isinstance(PlacementSpec.replica().kind, PlacementSpecKind)
    placement = Placement.from_text("S[0], R")
    assert str(placement) == "S[0], R"
    assert [(spec.kind, spec.axis) for spec in placement.dim_specs] == [(PlacementSpecKind.kSharding, 0), (PlacementSpecKind.kReplica, -1)]
    assert placement == Placement([PlacementSpec.sharding(0), PlacementSpec.replica()])
    assert str(PlacementSpec.ragged(1, (2, 3))) == "S[1](2, 3)"


def test_dtensor_struct_info():
    info = DTensorType(TensorStructInfo((10, 4), "float16"), DeviceMesh((2, 2)), Placement.from_text("S[0], S[0]"))
    assert (info.tensor_sinfo.shape, info.tensor_sinfo.dtype, info.tensor_sinfo.ndim) == ((10, 4), "float16", 2)
    assert [info.local(worker) for worker in range(4)] == [((3, 4), (0, 0)), ((2, 4), (3, 0)), ((3, 4), (5, 0)), ((2, 4), (8, 0))]


@pytest.mark.parametrize("wrong, why", [
    (lambda: DeviceMesh((2, 2), range(3)), "3 device_ids"),
    (lambda: DeviceMesh((2, 2), []), "device_ids is empty"),
    (lambda: DeviceMesh((2,), ["a", "b"]), "expected ints, got str"),
    (lambda: DeviceMesh((2,), names=[1, 2]), "a name is a str, got int"),
    (lambda: DeviceMesh((2,), names="dp"), "names is a str"),
    (lambda: Placement.from_text("Xéééééééééé"), "position 0, came 'Xéé"),
    (lambda: Placement.from_text("S[0], Q"), "position 6"),
    (lambda: PlacementSpec.partial("median"), "median"),
    (lambda: DTensorStructInfo(TensorStructInfo((4,)), DeviceMesh((2, 2)), Placement.from_text("R")), "1 entries, but the mesh has 2"),
    (lambda: DTensorStructInfo(TensorStructInfo((4,)), DeviceMesh(2), Placement.from_text("S[1]")), "cuts axis 1"),
    (lambda: TensorStructInfo((-4,)), "-4"),
    (lambda: VALUES[-1].local(9), "worker 9"),
])
def test_what_is_wrong(wrong, why):
    with pytest.raises((tutti.UsageError, TypeError), match=why):
        wrong()


def test_the_guide_s_code(capsys):
    guide = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "sharded.md").read_text()
    names = {}
    for code in re.findall(r"```python\n(.*?)```", guide, re.DOTALL):
        exec(code, names)  # noqa: S102
    assert "by 'S[0], S[1]' on DeviceMesh((2, 2), range(0, 4), names=['data', 'tensor'])" in capsys.readouterr().out


@pytest.mark.parametrize("name, placement", [("blocks", "S[0], S[1]"), ("columns", "R, S[1]"), ("rows_twice", "S[0], S[0]")])
def test_the_guide_s_pictures(name, placement):
    """docs/pictures, as show() draws them."""
    picture = pathlib.Path(__file__).resolve().parents[3] / "docs" / "pictures" / f"{name}.svg"
    mesh = DeviceMesh((2, 2), names=["data", "tensor"])
    assert picture.read_text().rstrip("\n") == DTensorStructInfo(TensorStructInfo((7, 6)), mesh, placement).show().svg().rstrip("\n")


def test_the_module_s_example():
    assert doctest.testmod(tutti.distributed) == (0, 3)


def test_pictures_of_three_axes():
    """Two are drawn: those where parts differ. Parts that differ in the third stand side by side in a cell."""
    cut = DTensorStructInfo(TensorStructInfo((2, 2, 2)), DeviceMesh((2, 2, 2)), "S[0], S[1], S[2]").show().svg()
    assert cut.count("<rect") == 4 and ">0 | 1</text>" in cut and "worker 6 | 7, axis 0: [1, 2), axis 1: [1, 2)" in cut
    last = DTensorStructInfo(TensorStructInfo((1, 1, 4)), DeviceMesh((1, 1, 4)), "S[0], S[1], S[2]").show().svg()
    assert last.count("<rect") == 4 and "|" not in last and "axis 2: 4" in last
    held = DTensorStructInfo(TensorStructInfo((4, 4)), DeviceMesh((2, 4)), "S[0], R").show()
    assert ">0-3</text>" in held.svg() and ">4-7</text>" in held.svg()


def test_a_function_that_names_shard_context_can_be_shipped():
    pytest.importorskip("cloudpickle")
    with tutti.ThreadedSession(2) as session:
        place = session.shard_map(lambda: np.full(1, shard_context().coordinate[0]), DeviceMesh(2), [], "S[0]")
        np.testing.assert_array_equal(place().full().numpy(), [0, 1])
