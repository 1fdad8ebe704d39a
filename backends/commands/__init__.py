"""`mks compile`, `pack`, `verify`, `tune` and `bench compile`; and how commands open models.

In: a command line. Out: an exit status, text, JSON, folders.

Order of imports: `artifact`, `compiled_folder`, `limited_process`, `terminal`, `find`, `load_pallas`, `compiled`,
`load`, `run_command`, `compile`, `bench_compile`, `pack`, `tune`, `verify_report`, `verify`.
"""
