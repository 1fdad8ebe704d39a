"""Movement: machines, shares, streams and collectives."""
