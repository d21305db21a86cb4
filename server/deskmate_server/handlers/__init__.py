"""Requests: parse, ask the kernel, convert. One generic handler is fed by the method table."""
