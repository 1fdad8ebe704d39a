"""The reference backend: a Model as plain JAX.

In: a Model's Instance and weights. Out: `ReferenceDecoder`; `forward` for all logits of a prompt.

Order of imports: `caches`, `integers`, `layers`, `passes`, `rounding`, `ops`, `compilation`, `states`, `saved_rows`,
`sequences`, `pending`, `rewind`, `weights`, `frame`, `loading`, `evaluate`, `step`, `parts`, `widths`, `decoder`.
"""

from .compilation import keep_compiled
from .decoder import ReferenceDecoder, forward
from .loading import Values, load
from .weights import Weights

__all__ = ["ReferenceDecoder", "Values", "Weights", "forward", "keep_compiled", "load"]
