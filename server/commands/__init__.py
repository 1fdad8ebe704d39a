"""`mks run`, `mks serve` and `mks bench`."""
