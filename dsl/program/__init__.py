"""What one core does in one step: everything that moves is explicit.

In: a Schedule and an Instance. Out: a `Program`, its proof, its bill, and how it reads in words.

Order of imports: `layout`, `ir`, `lower`, `verify`, `analysis`, `print`.
"""
