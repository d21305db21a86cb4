"""The kernel: sessions, the event log, the run loop, tools, providers.

It knows nothing of LSP; the server drives it through `kernel.py` only.
"""
