"""The language server: LSP on one side, the kernel's front door on the other.

Agent logic is absent on purpose, and so are SQL and providers: those are the session's.
"""
