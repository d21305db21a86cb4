"""What the editor holds: open documents, positions in them, and their URIs.

Nothing here sends a message. The disk is absent on purpose: a document is what the client told us, and
comparing it with a file is the kernel's business.
"""
