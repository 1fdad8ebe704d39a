"""The language: text, syntax, Model, Schedule, checks, and the `mks` command."""
