"""How the operands of an operation have to lie, and how its result lies then: the rules of data and tensor parallelism. Values only; nothing runs.

The axes of operands and result have labels. Those of one label are cut alike; an axis whose label the result lacks is summed over, so that
a cut of it makes the result partial. `None`: an axis of size 1 that is stretched. A matmul: ("m", "k") and ("k", "n") make ("m", "n").
"""

import functools
import itertools
import math

from ._core.distributed import DTensorStructInfo, Placement, PlacementSpec, TensorStructInfo, bytes_moved
from ._errors import UsageError

_REPLICA = ("R",)
_bytes_moved = functools.lru_cache(maxsize=4096)(bytes_moved)


def _meaning(spec, labels, joint):
    """What an entry of a placement means for all operands. Partial values that the operation can't take partial are reduced."""
    if spec.axis >= 0:
        return ("S", labels[spec.axis], tuple(spec.sizes)) if labels[spec.axis] is not None else _REPLICA
    return ("P", spec.op) if spec.op in joint else _REPLICA


def _spec(meaning, labels, lacking=None):
    """The entry of an operand with these labels; `lacking`: the entry for one that lacks the label."""
    if meaning[0] == "P":
        return PlacementSpec.partial(meaning[1])
    if meaning[0] == "S" and meaning[1] in labels:
        axis = labels.index(meaning[1])
        return PlacementSpec.ragged(axis, meaning[2]) if meaning[2] else PlacementSpec.sharding(axis)
    return lacking if meaning[0] == "S" and lacking else PlacementSpec.replica()


def _part_size(info):
    return max(math.prod(info.local(worker)[0]) for worker in info.device_mesh.device_ids)


@functools.lru_cache(maxsize=4096)
def propagate(infos, labels, result, result_labels, joint=frozenset(), contraction="sum", target=None, is_put_off=False):
    """The placement of each operand and of the result: those that move the fewest bytes, the reduction of a partial result included unless
    is_put_off; of equal ones those with the smallest parts.

    infos: DTensorStructInfo of each operand, on one mesh. labels: a tuple for each. result: its TensorStructInfo.
    joint: reductions that the operation may be done before: op(sum of a, sum of b) is the sum of op(a, b).
    contraction: how what is computed of the parts of an axis that goes makes the whole. target: the result's placement, if it is given.

    Raises UsageError if there are none: the target can't be computed.
    """
    mesh = infos[0].device_mesh
    givers = [(info.placement, names) for info, names in zip(infos, labels)] + ([(target, result_labels)] if target else [])
    meanings = [list(dict.fromkeys([_meaning(placement.dim_specs[dim], names, joint) for placement, names in givers] + [_REPLICA])) for dim in range(mesh.ndim)]
    best = None
    for choice in itertools.product(*meanings):
        try:
            goal = DTensorStructInfo(result, mesh, Placement([_spec(each, result_labels, PlacementSpec.partial(contraction)) for each in choice]))
            if target and goal.placement != target:
                continue
            goals = [DTensorStructInfo(info.tensor_sinfo, mesh, Placement([_spec(each, names) for each in choice])) for info, names in zip(infos, labels)]
            terms = math.prod(extent for extent, spec in zip(mesh.shape, goal.placement.dim_specs) if spec.op)
            cost = 0 if is_put_off else result.nbytes * (terms - 1)
            for info, each in zip(infos, goals):
                if best is None or cost <= best[0][0]:
                    cost += _bytes_moved(info, each)
        except UsageError:  # no such placement, or no way to it: partial values of two kinds, sizes after another cut
            continue
        if best is not None and cost > best[0][0]:
            continue
        key = cost, sum(map(_part_size, [*goals, goal]))
        if best is None or key < best[0]:
            best = key, tuple(each.placement for each in goals), goal.placement
    if best is None:
        raise UsageError(f"the result can't be '{target}' here; leave the placement to the operation, and redistribute what it returns")
    return best[1:]


def broadcast(shapes):
    """The common shape, and the labels of each operand's axes. Raises ValueError: they do not fit."""
    ndim = max(map(len, shapes), default=0)
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    common = []
    for axis, extents in enumerate(zip(*padded)):
        others = {extent for extent in extents if extent != 1}
        if len(others) > 1:
            raise UsageError(f"shapes {', '.join(str(tuple(shape)) for shape in shapes)} do not fit: axis {axis - ndim} has {' and '.join(map(str, sorted(others)))}")
        common.append(others.pop() if others else 1)
    labels = tuple(tuple(axis if shape[axis] == common[axis] else None for axis in range(ndim - len(given), ndim)) for shape, given in zip(padded, shapes))
    return tuple(common), labels
