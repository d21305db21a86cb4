"""The reference for start and memory: a pygls server that does nothing."""

from pygls.lsp.server import LanguageServer

LanguageServer("bare", "1").start_io()
