"""Ctrl-C and friends: the work is cancelled once, and gets the time to end in order."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = 3
"""Signals at which we leave at once; two often come together, since a terminal or `timeout` sends to all."""


def interruptible(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end, or until a signal cancels it. Raises `KeyboardInterrupt` when it was cut."""

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        came = 0

        def stop() -> None:
            nonlocal came
            came += 1
            if came == 1:
                task.cancel()
            elif came >= _PATIENCE:
                os._exit(INTERRUPTED)

        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` and a shell's `&` want it
                loop.add_signal_handler(number, stop)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
