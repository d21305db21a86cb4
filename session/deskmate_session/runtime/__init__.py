"""The running kernel: it performs what the pure core decides, and commits what happened.

No SQL, no wire: facts go to the log, deltas to the bus, and whoever listens takes it from there.
"""
