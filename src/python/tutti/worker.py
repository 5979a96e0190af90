"""What a function that a session calls can ask and do, on the thread that the session called."""

from ._core.worker import *  # noqa: F401,F403
