"""The reference backend: a Model as plain JAX."""

from .compilation import keep_compiled
from .decoder import ReferenceDecoder, forward
from .loading import Values, load
from .weights import Weights

__all__ = ["ReferenceDecoder", "Values", "Weights", "forward", "keep_compiled", "load"]
