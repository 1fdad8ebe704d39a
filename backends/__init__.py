"""Where a Model runs."""
