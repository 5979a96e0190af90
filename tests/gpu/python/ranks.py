"""Ranks of Python sum what is on their GPUs: mpirun -n N python3 -m tutti ranks.py. No pytest: it loads what may hide a
fault, numpy and torch among them, before tutti."""

import tutti

import numpy

with tutti.Session() as session:
    session.init_ccl("nccl")
    ranks = session.num_workers
    sums = session.broadcast(numpy.arange(1000, dtype="float32"))
    session.allreduce(sums, sums)
    for rank in range(ranks):
        assert (sums.debug_get_from_remote(rank).numpy() == ranks * numpy.arange(1000)).all(), f"of worker {rank}"
    rows = session.distribute(numpy.arange(35, dtype="float32").reshape(7, 5), tutti.distributed.DeviceMesh(ranks), "S[0]")
    assert (rows.redistribute("S[1]").full().numpy().ravel() == numpy.arange(35)).all()
    print(f"summed by {ranks} ranks")
