"""From the kernel's exceptions to JSON-RPC errors; the one place where that happens."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from deskmate_server.wire.errors import RequestFailed
from deskmate_session.errors import Conflict, LogCorrupt, LogError, LogReadOnly, Rejected


@asynccontextmanager
async def guard() -> AsyncGenerator[None]:
    """Translate what the body raises."""
    try:
        yield
    except Rejected as rejected:
        raise RequestFailed(rejected.kind, rejected.message, rejected.hint) from None
    except LogReadOnly as error:
        raise RequestFailed("logReadOnly", str(error), "see `deskmate doctor`") from None
    except LogCorrupt as error:
        raise RequestFailed("logCorrupt", str(error), "see `deskmate doctor`") from None
    except Conflict as error:
        raise RequestFailed("conflict", str(error), "try again") from None
    except LogError as error:
        hint = "is there room on the disk? see `deskmate doctor`"
        raise RequestFailed("logReadOnly", str(error), hint) from None
