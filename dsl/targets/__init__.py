"""The machines that schedules name.

Out: `targets`, one row a chip, each figure with its source.

Order of imports: `targets`.
"""
