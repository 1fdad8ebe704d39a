"""Movement: shares, streams and collectives.

In: a schedule's syntax and its Model. Out: a `Schedule`, and at given sizes the `Shares` of each core.

Order of imports: `blocks`, `ir`, `choose`, `context`, `fits`, `options`, `collectives`, `reduce_scatter`, `shares`,
`speculation`, `storing`, `movement`, `resolve`.
"""
