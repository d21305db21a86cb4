"""The exporter: one declaration of the wire, said again as documents, JSON schema, TypeScript and Lua.

It runs when a developer says `make generate` and never in the server, so reading attribute docstrings costs
nothing at start. *What* is exported is absent on purpose: that is `wire.methods` and the kernel's `model`.
"""
