"""The `mks` command."""
