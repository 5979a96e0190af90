"""Where the parts of sharded tensors lie: the words of TVM's relax.distributed, and more kinds of placement. All are values: they never
change, compare by what they hold, and can be keys of a dict.

>>> mesh = device_mesh((2, 2), range(4), names=["data", "tensor"])
>>> weights = DTensorStructInfo(TensorStructInfo((8, 6)), mesh, Placement.from_text("R, S[1]"))
>>> weights.local(3)
(Shape(8, 3), Shape(0, 3))
"""

import enum as _enum

from ._core.distributed import *  # noqa: F401,F403
from ._core.distributed import DeviceMesh, DTensorStructInfo, distribute as _distribute


class PlacementSpecKind(_enum.IntEnum):
    """What a PlacementSpec does; the first two as TVM numbers them."""

    kSharding = 0
    kReplica = 1
    kPartial = 2
    kRagged = 3


def device_mesh(shape, device_ids=None, names=None):
    """A DeviceMesh, as TVM's function of this name makes it."""
    return DeviceMesh(shape, device_ids, names)


def _session_distribute(self, array, mesh, placement):
    """Parts of an array on the workers of a mesh: a tutti.distributed.DTensor. The array may be changed on return.

    placement: a tutti.distributed.Placement, or its text, such as "S[0], R".
    """
    return _distribute(self, array, mesh, placement)


DTensorType = DTensorStructInfo  # its name in newer TVM
