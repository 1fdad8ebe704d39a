"""Each part of a kernel against the reference.

In: a Program and operands. Out: what differs by how much, part by part; faults made on purpose.

Order of imports: `fault_injection`, `report`, `traced_run`, `compare`.
"""
