"""Where the parts of sharded tensors lie: the words of TVM's relax.distributed, and more kinds of placement. All are values: they never
change, compare by what they hold, and can be keys of a dict.

>>> mesh = device_mesh((2, 2), range(4), names=["data", "tensor"])
>>> weights = DTensorStructInfo(TensorStructInfo((8, 6)), mesh, Placement.from_text("R, S[1]"))
>>> weights.local(3)
(Shape(8, 3), Shape(0, 3))
"""

import enum as _enum

from . import _operators, _remote  # noqa: F401  gives DTensor its operators
from ._core import DRef as _DRef
from ._core.distributed import *  # noqa: F401,F403
from ._core.distributed import DeviceMesh, DTensor, DTensorStructInfo, ShardMap, distribute as _distribute, load as _load, save as _save, save_async as _save_async, shard_context as _shard_context
from ._pictures import Holders as _Holders


class PlacementSpecKind(_enum.IntEnum):
    """What a PlacementSpec does; the first two as TVM numbers them."""

    kSharding = 0
    kReplica = 1
    kPartial = 2
    kRagged = 3


def device_mesh(shape, device_ids=None, names=None):
    """A DeviceMesh, as TVM's function of this name makes it."""
    return DeviceMesh(shape, device_ids, names)


def shard_context():
    """The ShardContext of the function that this thread runs for a ShardMap: mesh, coordinate, parts of arguments, communicators."""
    return _shard_context()  # a function of Python's: it can be shipped


def _session_distribute(self, array, mesh, placement):
    """Parts of an array on the workers of a mesh: a tutti.distributed.DTensor. The array may be changed on return.

    placement: a tutti.distributed.Placement, or its text, such as "S[0], R".
    """
    return _distribute(self, array, mesh, placement)


def _session_shard_map(self, func, mesh, in_placements, out_placements):
    """A function on the parts of DTensors: each worker of the mesh calls it with its own parts, and what it returns are parts again.

    func: a DPackedFunc, the name of a registered function, or a Python function, which is shipped as by `define`.
    in_placements: for each argument a Placement or its text; None: it is no DTensor, every worker gets it as it is. Arguments that lie
    otherwise are redistributed.
    out_placements: the same for what it returns: a list of placements, one placement alone for a function that returns one tensor, or None:
    then a call does not wait, and returns a DRef.

        double = session.shard_map(lambda x: 2 * x.numpy(), mesh, ["S[0]"], "S[0]")
        y = double(x)
    """
    if isinstance(func, str):
        func = self.get_global_func(func)
    elif not isinstance(func, _DRef):
        func = _remote.define(self, func)
    return ShardMap(self, func, mesh, in_placements, out_placements)


def _session_save(self, path, tensors, metadata=None, file_bytes=None, timeout=None, progress=False, direct=False):
    """Saves DTensors, {name: DTensor}, in files that huggingface's safetensors and numpy read. The end of the path says the format: .safetensors;
    .safetensors.index.json, with files of at most `file_bytes` (4 GiB) beside it; .npy, of one tensor.

    Each worker writes its own bytes; all have to see the same file system. The files appear at once, or not at all: until then, and after a
    crash, those of an earlier save are as they were. metadata: str by str, kept in the header. progress: a bar of tqdm's. direct: past the
    page cache (O_DIRECT), where the file system can. Synchronising.
    """
    _save(self, path, tensors, metadata, file_bytes, timeout, progress, direct)


def _session_save_async(self, path, tensors, metadata=None, file_bytes=None, timeout=None, direct=False):
    """The same, but waits only until the workers have copied their parts; they write while the session works on. Returns a Saving, whose
    `wait()` waits for the files and raises what went wrong. Keep it: one that goes is waited for.
    """
    return _save_async(self, path, tensors, metadata, file_bytes, timeout, direct)


def _session_load(self, path, mesh, placements, verify=True, timeout=None, direct=False):
    """The DTensors of a .safetensors or .npy file or of an index, {name: DTensor}, on any mesh. Each worker reads its own bytes.

    placements: one for all tensors; or a dict, {name: placement}, of those that are wanted; or a function of name and TensorStructInfo that
    returns one, or None. verify: compares checksums, if tutti saved the file; that takes time. direct: past the page
    cache (O_DIRECT), where the file system can. Synchronising.
    """
    return _load(self, path, mesh, placements, verify, timeout, direct)


def _show(self):
    """Who holds what: a table, in notebooks a picture; `.svg()` and `.html()` give the picture as text, for files. Print it, or leave it to a notebook."""
    return _Holders(self if isinstance(self, DTensorStructInfo) else self.info)


DTensor.show = DTensorStructInfo.show = _show
DTensorType = DTensorStructInfo  # its name in newer TVM

__all__ = [name for name in dir() if not name.startswith("_")]
