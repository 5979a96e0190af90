"""A libtutti with libstdc++ inside leaves the libstdc++.so of others alone: check_static_runtime.py LIBTUTTI CALL_ONCE"""

import ctypes
import sys

if "libstdc++" in open("/proc/self/maps").read():
    print("this Python has libstdc++ itself, which would hide what is looked for")
    sys.exit(77)
ctypes.CDLL(sys.argv[1])  # in a scope of its own, as Python loads its modules
assert ctypes.CDLL(sys.argv[2]).tutti_test_call_once() == 1
