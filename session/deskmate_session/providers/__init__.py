"""Ways to reach models: one `Provider` port, the real adapters and one that plays a script.

Each adapter is three small things: an encoder (request → bytes, each message once), a sans-IO answer
(SSE events → `StreamEvent`s) and a transport. The HTTP libraries are imported in `load()` only.
Deliberately absent: retrying (the runtime's, visible and cancellable) and the parsing of a call's
arguments (`core`).
"""
