"""`python -m benchmarks.profiled FILE ARGUMENT …`: the command line of deskmate under cProfile.

The server leaves by `os._exit`, so that is where the profile is written. Threads aren't seen, except the one
that writes the log: FILE with `.writer` at its end.
"""

import cProfile
import os
import sys
import threading
from typing import Any, NoReturn

WRITER = "deskmate-log-writer"


def main() -> None:
    """Profile what follows the file's name."""
    file, *arguments = sys.argv[1:]
    profile, really = cProfile.Profile(), os._exit
    run = threading.Thread.run

    def leave(code: int) -> NoReturn:
        profile.disable()
        profile.dump_stats(file)
        really(code)

    def run_profiled(thread: threading.Thread) -> None:
        if thread.name != WRITER:
            run(thread)
            return
        own = cProfile.Profile()
        own.runcall(run, thread)
        own.dump_stats(f"{file}.writer")

    patched: Any = threading.Thread
    patched.run = run_profiled
    os._exit = leave
    profile.enable()
    from deskmate_server.cli.main import run as deskmate

    leave(deskmate(arguments))


if __name__ == "__main__":
    main()
