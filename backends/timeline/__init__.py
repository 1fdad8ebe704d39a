"""How long a Program's step takes: predicted by simulating it event by event, for one core, the slowest."""
