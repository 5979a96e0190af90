"""Ranks of Python sum what is on their GPUs: mpirun -n N python3 -m tutti ranks.py. No pytest: it loads what may hide a
fault, numpy and torch among them, before tutti."""

import tempfile

import tutti

import numpy

with tutti.Session() as session:
    session.init_ccl("nccl")
    ranks = session.num_workers
    sums = session.broadcast(numpy.arange(1000, dtype="float32"))
    session.allreduce(sums, sums)
    for rank in range(ranks):
        assert (sums.debug_get_from_remote(rank).numpy() == ranks * numpy.arange(1000)).all(), f"of worker {rank}"
    mesh, numbers = tutti.distributed.DeviceMesh(ranks), numpy.arange(35, dtype="float32").reshape(7, 5)
    rows = session.distribute(numbers, mesh, "S[0]")
    assert (rows.redistribute("S[1]").full().numpy() == numbers).all()
    assert (session.distribute(numbers, mesh, "P").redistribute("S[0]").full().numpy() == numbers).all()
    with tempfile.TemporaryDirectory() as folder:
        session.save(folder + "/rows.safetensors", {"rows": rows})
        columns = session.load(folder + "/rows.safetensors", mesh, "S[1]")["rows"]
        assert (columns.full().numpy() == numbers).all()
    try:
        import cupy  # noqa: F401  the workers'
    except ImportError:
        pass
    else:
        products = rows @ session.distribute(numbers.T.copy(), mesh, "R")
        assert (products.full().numpy() == numbers @ numbers.T).all() and (rows.sum(axis=0).full().numpy() == numbers.sum(axis=0)).all()
    print(f"summed by {ranks} ranks")
