"""`python -m benchmarks`: the figures, each beside a reference measured in the same run.

Reports, never fails: a machine's noise is no bug. What each row means stands in docs/benchmarks.md.
"""
