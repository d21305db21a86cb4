"""The real server with one more tool, which writes to stdout in every way there is (case L01)."""

import os
import subprocess
import sys

from deskmate_server.__main__ import main
from deskmate_session import kernel
from deskmate_session.model.base import Wire
from deskmate_session.model.ports import Effect, ToolContext, ToolResult
from deskmate_session.tools.registry import default_tools


class NoArgs(Wire):
    """No arguments."""


class Noisy:
    """Prints, writes to descriptor 1, and runs a child that inherits it."""

    name = "noisy"
    effect: Effect = "none"
    description = "Make noise."
    args = NoArgs
    requests = ()

    def summary(self, args: Wire) -> str:
        return "noisy"

    async def prepare(self, args: Wire, context: ToolContext) -> "Noisy":
        return self

    async def run(self) -> ToolResult:
        print("printed noise")
        sys.stdout.flush()
        os.write(1, b"Content-Length: 5\r\n\r\nnoise\n")
        subprocess.run(["sh", "-c", "echo child noise; cat"], check=True)
        return ToolResult("made noise", "noise")


kernel.default_tools = lambda: (*default_tools(), Noisy())

if __name__ == "__main__":
    main()
