"""How numbers lie in memory, by shape alone: so that movement changes no bit.

In: shapes and element widths. Out: tilings, experts' layouts.

Order of imports: `lanes`, `tiling`, `expert_layout`.
"""
