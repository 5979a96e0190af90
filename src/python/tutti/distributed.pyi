from enum import IntEnum
from typing import Any, List, Optional, Sequence, Tuple, Union

from ._core import DRef, Session, Tensor
from ._types import DataType, Shape

class PlacementSpecKind(IntEnum):
    kSharding = 0
    kReplica = 1
    kPartial = 2
    kRagged = 3

class DeviceMesh:
    def __init__(self, shape: Union[int, Sequence[int]], device_ids: Optional[Sequence[int]] = None, names: Optional[Sequence[str]] = None) -> None: ...
    shape: Shape
    ndim: int
    size: int
    device_ids: List[int]
    names: Tuple[str, ...]
    def dim(self, name: str) -> int: ...
    def worker(self, coordinate: Union[int, Sequence[int]]) -> int: ...
    def coordinate(self, worker: int) -> Optional[Shape]: ...

class PlacementSpec:
    @staticmethod
    def sharding(axis: int) -> PlacementSpec: ...
    @staticmethod
    def replica() -> PlacementSpec: ...
    @staticmethod
    def partial(op: str = "sum") -> PlacementSpec: ...
    @staticmethod
    def ragged(axis: int, sizes: Sequence[int]) -> PlacementSpec: ...
    kind: PlacementSpecKind
    axis: int
    op: str
    sizes: List[int]

class Placement:
    def __init__(self, dim_specs: Sequence[PlacementSpec]) -> None: ...
    @staticmethod
    def from_text(text: str) -> Placement: ...
    dim_specs: List[PlacementSpec]

class TensorStructInfo:
    def __init__(self, shape: Union[int, Sequence[int]], dtype: Any = "float32") -> None: ...
    shape: Shape
    dtype: DataType
    ndim: int

class DTensorStructInfo:
    def __init__(self, tensor_sinfo: TensorStructInfo, device_mesh: DeviceMesh, placement: Placement) -> None: ...
    tensor_sinfo: TensorStructInfo
    device_mesh: DeviceMesh
    placement: Placement
    def local(self, worker: int) -> Tuple[Shape, Shape]: ...

class DTensor:
    def __init__(self, parts: DRef, info: DTensorStructInfo) -> None: ...
    info: DTensorStructInfo
    shape: Shape
    dtype: DataType
    mesh: DeviceMesh
    placement: Placement
    parts: DRef
    def redistribute(self, placement: Union[str, Placement], mesh: Optional[DeviceMesh] = None) -> DTensor: ...
    def full(self, timeout: Optional[float] = None) -> Tensor: ...
    def gather_to_worker0(self) -> DRef: ...

DTensorType = DTensorStructInfo

def distribute(session: Session, array: Any, mesh: DeviceMesh, placement: Union[str, Placement]) -> DTensor: ...
def explain(from_info: DTensorStructInfo, to_info: DTensorStructInfo) -> str: ...

def device_mesh(shape: Union[int, Sequence[int]], device_ids: Optional[Sequence[int]] = None, names: Optional[Sequence[str]] = None) -> DeviceMesh: ...
