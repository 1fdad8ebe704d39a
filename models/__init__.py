"""Definitions, and what turns a checkpoint into weights."""
