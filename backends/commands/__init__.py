"""`mks compile`, `pack`, `verify`, `tune` and `bench compile`.

In: a command line. Out: an exit status, text, JSON, folders.

Order of imports: `limited_process`, `terminal`, `run_command`, `compile`, `bench_compile`, `pack`, `tune`,
`verify_report`, `verify`.
"""
