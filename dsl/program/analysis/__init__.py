"""What a Program takes and costs: memory, traffic, roofline, and what of a schedule would fit.

In: Programs. Out: bills, reports, and diagnostics for what does not fit or has no effect.

Order of imports: `check_program`, `fingerprint`, `routing_stats`, `spills`, `traffic`, `memory`, `remedies`,
`roofline`, `estimate`, `capacity`, `report`.
"""
