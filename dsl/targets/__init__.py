"""The machines that schedules name.

Out: `targets`, one row a chip, each figure with its source: how much memory it has, how fast it computes and sends,
what its compiler spills and which features it has.

Order of imports: `lanes`, `target`, `check_target`, `sources`, `v5e`, `v5p`, `v6e`, `tpu7x`, `targets`.
"""
