"""The reference backend: a Model as plain JAX."""
