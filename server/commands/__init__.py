"""`mks run`, `mks serve` and `mks bench`.

In: a command line. Out: an exit status; a server until a signal.

Order of imports: `bench`, `bench_command`, `generate`, `model_options`, `run`, `serve`, `serve_options`, `entry`,
`shell_scripts`, `completion`.
"""
