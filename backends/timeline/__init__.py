"""How long a Program's step takes: predicted by simulating it event by event.

In: a Program, a machine's figures, counted bundles. Out: a prediction, and schedules that are faster.

Order of imports: `actions`, `counted`, `machine_model`, `costs`, `links`, `moves`, `rewrite`, `simulate`, `state`,
`moving`, `unroll`, `summary`, `tune`, `text`, `report`.
"""
