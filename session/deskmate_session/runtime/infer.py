"""One request to the model: build it, stream the answer, log what came."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from deskmate_session.config.agents import Agent
from deskmate_session.core.context.project import project
from deskmate_session.core.context.system import Environment, system_blocks
from deskmate_session.core.processor import BATCH_MS, FOLLOWED_BATCH_MS, AnswerProcessor, Output
from deskmate_session.core.state import SessionState
from deskmate_session.errors import ProviderError
from deskmate_session.model import events as e
from deskmate_session.model.messages import AnswerFinish, TurnError, Usage
from deskmate_session.model.ports import Clock, Ids, ModelRequest, ModelResult, Provider, ToolSpec
from deskmate_session.model.updates import Delta
from deskmate_session.providers.registry import Resolved
from deskmate_session.runtime.bus import Bus
from deskmate_session.runtime.control import TurnControl
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.supervisor import Supervisor

STOP_WITHIN = 0.25
"""Seconds that a provider's stream gets to close after an interrupt."""
DEFAULT_MAX_OUTPUT = 8_192
CHUNKS_IN_A_ROW = 64
"""Network chunks that are read before everyone else on the loop gets a turn; some 2 ms of work."""


@dataclass(slots=True)
class Inference:
    """Asks models."""

    sessions: Sessions
    bus: Bus
    ids: Ids
    clock: Clock
    supervisor: Supervisor
    environment: Environment
    tools: tuple[ToolSpec, ...]
    tools_version: str
    live: dict[str, AnswerProcessor]
    """The answer that streams now, by session."""
    followed: Callable[[], bool]
    """Another process follows the log."""

    async def run(
        self, state: SessionState, step: int, agent: Agent, resolved: Resolved, control: TurnControl
    ) -> None:
        """Ask once. Ends with `model.responded` or `model.failed`."""
        turn = state.turn
        if turn is None:
            return
        session_id = state.info.id
        # The first time this imports a library, which nothing can stop; an interrupt does not wait for it.
        load = self.supervisor.spawn(resolved.provider.load(), name=f"load {resolved.provider.name}")
        if not await control.finished(load):
            return
        load.result()
        request = self._request(state, agent, resolved)
        body = resolved.provider.encode(request)
        message_id = self.ids.new("msg")
        constructed = self._constructed(state, message_id, step, agent, resolved, request, body)
        await self.sessions.append(session_id, constructed)
        processor = AnswerProcessor(session_id, message_id, step, self.ids, self.clock.now())
        self.live[session_id] = processor
        ticker = self.supervisor.spawn(self._tick(session_id, processor), name=f"batches {message_id}")
        stream = self.supervisor.spawn(
            self._stream(session_id, resolved.provider, body, processor), name=f"stream {message_id}"
        )
        try:
            if not await control.finished(stream):
                stream.cancel()
                await asyncio.wait({stream}, timeout=STOP_WITHIN)
                await self._close(state, processor, resolved, "interrupted")
            elif (error := stream.exception()) is not None:
                await self._emit(session_id, processor.fail(self.clock.now(), _turn_error(error)))
            else:
                ended = processor.ended
                await self._close(state, processor, resolved, ended.finish if ended else "unknown")
        finally:
            ticker.cancel()
            del self.live[session_id]

    def _request(self, state: SessionState, agent: Agent, resolved: Resolved) -> ModelRequest:
        return ModelRequest(
            model=resolved.model,
            system=system_blocks(agent.prompt, self.environment),
            messages=project(state.conversation),
            tools=self.tools,
            max_output=resolved.info.max_output or DEFAULT_MAX_OUTPUT,
        )

    def _constructed(
        self,
        state: SessionState,
        message_id: str,
        step: int,
        agent: Agent,
        resolved: Resolved,
        request: ModelRequest,
        body: bytes,
    ) -> e.ContextConstructed:
        rounds = sum(1 for message in request.messages if message.role == "user")
        results = sum(
            1 for message in request.messages for block in message.blocks if isinstance(block, ModelResult)
        )
        prompt_id = state.turn.message_id if state.turn else ""
        return e.ContextConstructed(
            message_id=message_id,
            parent_id=prompt_id,
            step=step,
            agent=agent.name,
            model=f"{resolved.provider.name}/{resolved.model}",
            policy="full",
            history_rounds=rounds,
            work_context_files=tuple(state.work_context.files),
            tool_results=results,
            token_count=len(body) * 2 // 7,
            request_hash=hashlib.sha256(body).hexdigest(),
            versions={"agent": agent.version, "tools": self.tools_version},
        )

    async def _stream(
        self, session_id: str, provider: Provider, body: bytes, processor: AnswerProcessor
    ) -> None:
        taken = 0
        async with aclosing(provider.stream(body)) as chunks:
            async for chunk in chunks:
                await self._emit(session_id, processor.feed(chunk, self.clock.now()))
                taken += 1
                if taken % CHUNKS_IN_A_ROW == 0:
                    # Chunks that wait in a buffer come without any wait, hundreds in a row: the first delta
                    # would be shown, and an interrupt seen, only after them.
                    await asyncio.sleep(0)

    async def _tick(self, session_id: str, processor: AnswerProcessor) -> None:
        """Text must reach the log in time even while the stream is silent."""
        while True:
            processor.batch_ms = FOLLOWED_BATCH_MS if self.followed() else BATCH_MS
            await asyncio.sleep(FOLLOWED_BATCH_MS / 1000)
            await self._emit(session_id, processor.batch(self.clock.now()))

    async def _emit(self, session_id: str, items: Iterable[Output]) -> None:
        """Log facts and show deltas, in order: a part is announced before its first delta."""
        for item in items:
            if isinstance(item, Delta):
                self.bus.publish(session_id, [item])
                continue
            appended = self.sessions.append(session_id, item)
            if isinstance(item, e.PartAppended):
                appended.add_done_callback(_look)  # the next fact that is waited for fails in its turn
            else:
                await appended

    async def _close(
        self, state: SessionState, processor: AnswerProcessor, resolved: Resolved, finish: AnswerFinish
    ) -> None:
        told = processor.ended.usage if processor.ended else None
        usage = (told or Usage()).model_copy(
            update={
                "context_window": resolved.info.context_window,
                "context_used": None
                if told is None
                else told.input + told.output + told.cache_read + told.cache_write,
            }
        )
        cost = resolved.info.cost(usage) if told is not None else None
        await self._emit(state.info.id, processor.close(self.clock.now(), usage, cost, finish))


def _look(appended: "asyncio.Future[list[e.Event]]") -> None:
    if not appended.cancelled():
        appended.exception()


def _turn_error(error: BaseException) -> TurnError:
    if isinstance(error, ProviderError):
        return TurnError(kind=error.kind, message=error.message, hint=error.hint)
    return TurnError(kind="internal", message=f"the answer could not be read: {error}")
