"""The wire: frames, the stdio loop, and JSON-RPC on top of pygls.

Everything here speaks in bytes, JSON and LSP types. What a method *does* is absent on purpose (see
`handlers`), and so is what a document *is* (see `editor`).
"""
