"""run_pytest.py ARGUMENTS...: pytest. Where it is not installed, the test is skipped and says so: exit code 77."""

import sys

try:
    import numpy  # noqa: F401
    import pytest
except ImportError as missing:
    print(f"{missing.name} is not installed: apt-get install python3-pytest python3-numpy")
    sys.exit(77)
sys.exit(pytest.main(sys.argv[1:]))
