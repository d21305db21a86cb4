"""`deskmate lsp`: the language server on stdio."""

import asyncio
import logging
import os
import sys


def run() -> int:
    """Serve until the editor goes; never returns, the process ends with the protocol's exit code."""
    from deskmate_server import collecting
    from deskmate_server.wire.transport import claim_stdio, leave

    collecting.seldom()
    stdio = claim_stdio()
    level = os.environ.get("DESKMATE_LOG", "WARNING").upper()
    logging.basicConfig(
        stream=sys.stderr,
        level=level if level in logging.getLevelNamesMapping() else "WARNING",
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    from deskmate_server.app import serve_stdio

    leave(asyncio.run(serve_stdio(stdio)))
