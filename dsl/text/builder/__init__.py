"""Lark's parse tree to the syntax tree: one method for each rule of `grammar/mks.lark` that makes a node.

Order of imports: `base`, `expressions`, `model`, `schedule`.
"""

from .expressions import ExpressionRules
from .model import ModelRules
from .schedule import ScheduleRules


class Builder(ExpressionRules, ModelRules, ScheduleRules):
    """All rules of the grammar."""
