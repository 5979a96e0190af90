"""Sessions of every kind: TUTTI_TEST_KIND=thread|process|mpi, TUTTI_TEST_WORKERS=N. For mpi: mpirun -n N python3 -m tutti -m pytest ..."""

import os

import pytest

import tutti

KIND = os.environ.get("TUTTI_TEST_KIND", "thread")
WORKERS = int(os.environ.get("TUTTI_TEST_WORKERS", "2"))


def make_session(num_workers=WORKERS, num_groups=1):
    if KIND == "thread":
        return tutti.ThreadedSession(num_workers, num_groups)
    if KIND == "process":
        return tutti.ProcessSession(num_workers, num_groups)
    return tutti.Session(num_workers, num_groups)


@pytest.fixture
def session():
    with make_session() as made:
        made.import_python_module("functions")
        yield made


@pytest.fixture
def groups():
    """A session of two groups."""
    if WORKERS % 2:
        pytest.skip("an odd number of workers")
    with make_session(num_groups=2) as made:
        made.import_python_module("functions")
        yield made
