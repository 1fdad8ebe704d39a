"""Mathematics: names resolved, shapes inferred, sizes given."""
