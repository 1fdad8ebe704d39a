"""The Model: typed mathematics. It knows sizes, weights, states and parts, and nothing of devices.

Inside a statement every number is f32. An `Assign` rounds each value to its type's dtype, a `Write` to its state's;
operands of matrix products are rounded as their op says. `bf16` means the working type, which an instance may widen.

Order of imports: `expressions`, `statements`, `declarations`.
"""

from .declarations import (
    DECODE,
    Alias,
    CheckpointTensor,
    Codec,
    Ignore,
    LayerList,
    Model,
    Part,
    Require,
    Size,
    State,
    Step,
    Taps,
    Weight,
)
from .expressions import (
    Call,
    Experts,
    Input,
    Let,
    Local,
    Node,
    Read,
    Ref,
    Select,
    Slice,
    StateRef,
    Static,
    Type,
    WeightRef,
)
from .statements import (
    Assign,
    Loop,
    Run,
    Statement,
    Write,
)

__all__ = [
    "DECODE",
    "Alias",
    "Assign",
    "Call",
    "CheckpointTensor",
    "Codec",
    "Experts",
    "Ignore",
    "Input",
    "LayerList",
    "Let",
    "Local",
    "Loop",
    "Model",
    "Node",
    "Part",
    "Read",
    "Ref",
    "Require",
    "Run",
    "Select",
    "Size",
    "Slice",
    "State",
    "StateRef",
    "Statement",
    "Static",
    "Step",
    "Taps",
    "Type",
    "Weight",
    "WeightRef",
    "Write",
]
