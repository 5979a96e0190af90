"""The session API under the names of TVM Disco: `from tutti import disco` in the place of `from tvm.runtime import disco`."""

from ._core import DModule, DPackedFunc, DRef, ProcessSession, Session, SocketSession, ThreadedSession

__all__ = ["DModule", "DPackedFunc", "DRef", "ProcessSession", "Session", "SocketSession", "ThreadedSession"]
