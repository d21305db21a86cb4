"""Plain data, declared once and used on the wire, in the log and in memory.

Pydantic (frozen, camelCase) for what is logged or sent; slotted dataclasses for what lives in
memory only. No I/O, no clock, no asyncio.
"""
