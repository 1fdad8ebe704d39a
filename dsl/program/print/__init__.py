"""A Program for people, as text, and for tools, as JSON.

In: a Program. Out: text within 120 columns; plain data.

Order of imports: `json`, `ops`, `text`.
"""
