#!/usr/bin/env python3
"""platform.py NODES OUT_PREFIX: a SimGrid platform and host file: two-level fat tree, 100 Gb/s, 0.4 us a link (0.8 us between two
hosts of a leaf switch, 1.6 us between others), one rank a host."""
import math
import sys

nodes, out = int(sys.argv[1]), sys.argv[2]
leaf = min(nodes, 2 ** math.ceil(math.log2(math.sqrt(nodes))))
leaves = -(-nodes // leaf)
with open(out + ".xml", "w") as f:
    f.write(f"""<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="c" prefix="n" suffix="" radical="0-{nodes - 1}" speed="1Gf" bw="12.5GBps" lat="400ns" sharing_policy="SPLITDUPLEX"
           topology="FAT_TREE" topo_parameters="2;{leaf},{leaves};1,{leaf};1,1"/>
</platform>
""")
with open(out + ".hosts", "w") as f:
    f.writelines(f"n{i}\n" for i in range(nodes))
