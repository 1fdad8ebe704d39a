"""How long a Program's step takes: predicted by simulating it event by event.

In: a Program, a target's figures, counted bundles. Out: a prediction, and schedules that are faster.

Order of imports: `actions`, `counted`, `costs`, `links`, `moves`, `rewrite`, `simulate`, `state`,
`moving`, `unroll`, `summary`, `tune`, `text`, `report`.
"""
