"""The event log: one append-only SQLite database a workspace folder, chained by hash.

`store` is the door. Nothing here folds events into a conversation (that is `core`), and nothing
above imports sqlite3. Absent on purpose: a second implementation; SQLite is its own fake.
"""
