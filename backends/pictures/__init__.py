"""A Program's memory and step for the eye.

In: a Program and its prediction. Out: SVG, a Perfetto trace, an HTML page with the definition's source.

Order of imports: `lanes`, `lines`, `svg`, `windows`, `bands`, `memory`, `perfetto`, `timeline`, `page`, `entry`.
"""
