"""The session API under the names of TVM Disco: `from tutti import disco` in the place of `from tvm.runtime import disco`."""

import enum

from ._core import DModule, DPackedFunc, DRef, ProcessSession, Session, SocketSession, ThreadedSession

__all__ = ["DiscoAction", "DModule", "DPackedFunc", "DRef", "ProcessSession", "Session", "SocketSession", "ThreadedSession"]


class DiscoAction(enum.IntEnum):
    """What a session asks of its workers (C++: tutti/action.h)."""

    kShutDown = 0
    kKillReg = 1
    kGetGlobalFunc = 2
    kCallPacked = 3
    kSyncWorker = 4
    kCopyFromWorker0 = 5
    kCopyToWorker0 = 6
    kDebugGetFromRemote = 7
    kDebugSetRegister = 8
