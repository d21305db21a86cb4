"""`python -m benchmarks.reference ADDRESS`: what the same streams cost without us.

A process that takes one JSON line for each measurement and answers with one: when it sent, when it had the
first delta and when the end, and its processor time. `sdk` iterates the event objects of the Anthropic SDK,
`chat` reads the OpenAI wire with httpx, `loop` sends bodies of the given sizes one after the other with httpx
and reads the answers, unparsed.
"""

import asyncio
import json
import sys
import time
from typing import Any

import anthropic
import httpx

Json = Any


class Reference:
    """Clients that stay connected, as ours do."""

    def __init__(self, address: str) -> None:
        self._http = httpx.AsyncClient(base_url=address, trust_env=False, timeout=120)
        self._sdk = anthropic.AsyncAnthropic(api_key="none", base_url=address, max_retries=0)

    async def sdk(self, _: Json) -> dict[str, float]:
        """The event objects of `create(stream=True)`."""
        sent, first = time.monotonic(), 0.0
        stream = await self._sdk.messages.create(
            model="test", max_tokens=8192, messages=[{"role": "user", "content": "hello"}], stream=True
        )
        async for event in stream:
            if not first and event.type == "content_block_delta":
                first = time.monotonic()
        return {"sent": sent, "first": first, "end": time.monotonic()}

    async def chat(self, _: Json) -> dict[str, float]:
        """Lines of a chat completion, parsed."""
        sent, first = time.monotonic(), 0.0
        body = {"model": "test", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                if not first and event["choices"][0]["delta"].get("content"):
                    first = time.monotonic()
        return {"sent": sent, "first": first, "end": time.monotonic()}

    async def loop(self, sizes: list[int]) -> dict[str, float]:
        """Requests one after the other."""
        sent = time.monotonic()
        for size in sizes:
            async with self._http.stream("POST", "/v1/messages", content=b" " * size) as response:
                async for _ in response.aiter_raw():
                    pass
        return {"sent": sent, "first": sent, "end": time.monotonic()}


async def _main(address: str) -> None:
    reference = Reference(address)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        before = time.process_time()
        told = await getattr(reference, order["what"])(order.get("with"))
        print(json.dumps({**told, "cpu": time.process_time() - before}), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
