"""The bundles that a compiled kernel executes, counted from the compiler's schedule.

In: a Program. Out: bundles by scope, kept from run to run.

Order of imports: `llo_schedule`, `bundles`, `bundle_cache`, `counting`.
"""
