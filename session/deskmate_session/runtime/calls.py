"""One call: arguments, permission, run, result. Whatever happens, it ends with exactly one fact."""

import asyncio
import hashlib
import json
import logging
from dataclasses import dataclass
from typing import Any, cast

from deskmate_session.core import permissions
from deskmate_session.core.conversation import CallState
from deskmate_session.core.state import SessionState
from deskmate_session.errors import DeskmateError, FailureKind, LogError, ToolFailure
from deskmate_session.model import events as e
from deskmate_session.model.permissions import PermissionRequest, Rule
from deskmate_session.model.ports import Effect, Host, Prepared, Tool, ToolResult
from deskmate_session.model.updates import Delta
from deskmate_session.runtime.asks import Asks, By
from deskmate_session.runtime.bus import Bus
from deskmate_session.runtime.call_context import CallContext
from deskmate_session.runtime.changes import Author, Changes
from deskmate_session.runtime.control import TurnControl
from deskmate_session.runtime.place import Place
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.supervisor import Supervisor
from deskmate_session.tools.registry import Registry, parse_args

_logger = logging.getLogger(__name__)

KILL_AFTER = 0.25
"""Seconds from an interrupt until unsettled calls are recorded as interrupted."""
MAX_LOGGED_ARGS = 2_000
"""Bytes of canonical JSON; larger arguments stand once, in `model.responded`."""


_REFUSED: dict[By, str] = {
    "person": "the person refused",
    "timeout": "the person did not answer in time",
    "unattended": "nobody can be asked here",
    "interrupt": "interrupted before anyone answered",
    "recovery": "the server stopped before anyone answered",
}


class _Denied(DeskmateError):
    """A call may not run."""

    def __init__(self, by: str, message: str) -> None:
        super().__init__(message)
        self.rejected_by = "rule" if by == "rule" else "person"
        self.message = message


@dataclass(frozen=True, slots=True)
class Calls:
    """Runs calls."""

    sessions: Sessions
    bus: Bus
    asks: Asks
    changes: Changes
    host: Host
    tools: Registry
    rules: tuple[Rule, ...]
    place: Place
    supervisor: Supervisor

    def effect(self, name: str) -> Effect:
        """A tool's effect by its name; an unknown tool has none, since it never runs."""
        try:
            return self.tools.find(name).effect
        except ToolFailure:
            return "none"

    async def run(self, state: SessionState, call_ids: tuple[str, ...], control: TurnControl) -> None:
        """Run calls side by side until all are settled."""
        calls = [state.conversation.calls[call_id] for call_id in call_ids]
        if len(calls) == 1:
            await self._one(state, calls[0], control)
            return
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(self._one(state, call, control))

    async def drop(
        self, state: SessionState, call_ids: tuple[str, ...], reason: str, kind: FailureKind
    ) -> None:
        """Settle calls that never ran."""
        facts = [
            e.CallFailed(
                call_id=call_id,
                tool=state.conversation.calls[call_id].tool,
                kind=kind,
                error=reason,
                interrupted=True if kind == "interrupted" else None,
            )
            for call_id in call_ids
        ]
        await self.sessions.append(state.info.id, *facts)

    async def _one(self, state: SessionState, call: CallState, control: TurnControl) -> None:
        context = self._context(state, call)
        work = self.supervisor.spawn(self._prepare(state, call, context), name=f"prepare {call.call_id}")
        if not await control.finished(work):
            work.cancel()
            await asyncio.wait({work}, timeout=KILL_AFTER)
            await self._fail(state, call, "interrupted", "interrupted before it ran", interrupted=True)
            return
        try:
            tool, args, prepared = work.result()
        except _Denied as denied:
            await self._fail(state, call, "denied", denied.message, rejected_by=denied.rejected_by)
            return
        except ToolFailure as failure:
            await self._fail(state, call, failure.kind, failure.message)
            return
        except LogError:
            raise
        except Exception as error:
            _logger.exception("tool %s could not start", call.tool)
            await self._fail(state, call, "failed", f"the tool could not start: {error}")
            return
        logged = args if context.changed is not None else _logged_args(args)
        fact = e.CallStarted(call_id=call.call_id, tool=call.tool, args=logged)
        await self.sessions.append(state.info.id, fact, durable=tool.effect != "none")
        await self._run(state, call, tool, prepared, context, control)

    async def _run(
        self,
        state: SessionState,
        call: CallState,
        tool: Tool,
        prepared: Prepared,
        context: CallContext,
        control: TurnControl,
    ) -> None:
        work = self.supervisor.spawn(prepared.run(), name=f"run {call.call_id}")
        in_time = await control.finished(work)
        if not in_time:
            work.cancel()
            done, _ = await asyncio.wait({work}, timeout=KILL_AFTER)
            if not done:
                control.leave(call.call_id, work)
            if not done or work.cancelled() or work.exception() is not None:
                unknown = tool.effect == "effect" and not context.updates
                await self._fail(
                    state,
                    call,
                    "interrupted",
                    "interrupted"
                    + (": it may have had effects; look before you repeat it" if unknown else ""),
                    output=context.output() or None,
                    interrupted=True,
                    outcome_unknown=unknown or None,
                    updates=context.updates,
                )
                return
        try:
            result = work.result()
        except ToolFailure as failure:
            await self._fail(
                state,
                call,
                failure.kind,
                failure.message,
                timed_out=True if failure.kind == "timeout" else None,
                outcome_unknown=failure.outcome_unknown or None,
                updates=context.updates,
            )
        except LogError:
            raise
        except Exception as error:
            _logger.exception("tool %s failed", call.tool)
            await self._fail(state, call, "failed", f"the tool failed: {error}", updates=context.updates)
        else:
            await self._complete(state, call, result, context)

    async def _prepare(
        self, state: SessionState, call: CallState, context: CallContext
    ) -> tuple[Tool, dict[str, Any], Prepared]:
        """Arguments, then a look at the world, then every permission that the call needs."""
        tool = self.tools.find(call.tool)
        given: Any = call.args
        while True:
            args = parse_args(tool, given)
            prepared = await tool.prepare(args, context)
            changed = await self._permit(state, call, prepared.requests, approved=given is not call.args)
            if changed is None:
                used = args.model_dump(mode="json", by_alias=True, exclude_unset=True)
                context.changed = used if given is not call.args else None
                return tool, used, prepared
            given = changed  # the person changed the arguments: the rules judge them again

    async def _permit(
        self,
        state: SessionState,
        call: CallState,
        requests: tuple[PermissionRequest, ...],
        *,
        approved: bool,
    ) -> dict[str, Any] | None:
        """Pass every request, or raise `_Denied`. Returns other arguments where the person gave some.

        `approved`: the person gave these arguments, so what would be asked is answered; a deny stays a deny.
        """
        for request in requests:
            verdict = permissions.judge(request, self.rules, state.grants, state.info.mode)
            if verdict.action == "allow" or (approved and verdict.action == "ask"):
                continue
            if verdict.action == "deny":
                rule = verdict.rule
                told = f" ({rule.permission}: {rule.pattern!r})" if rule else ""
                raise _Denied("rule", f"denied by a permission rule{told}: {request.title}")
            answer = await self.asks.permission(state.info.id, call.call_id, request)
            if answer.reply == "reject":
                remark = f": {answer.message}" if answer.message else ""
                raise _Denied("person", f"{_REFUSED[answer.by]}{remark}")
            if answer.input is not None and answer.input != call.args:
                return answer.input
        return None

    async def _complete(
        self, state: SessionState, call: CallState, result: ToolResult, context: CallContext
    ) -> None:
        fact = e.CallCompleted(
            call_id=call.call_id,
            tool=call.tool,
            success=result.success,
            output=_told(context, result.output),
            title=result.title,
            exit_code=result.exit_code,
            truncated=result.truncated or None,
            output_file=result.output_file,
            reads=result.reads,
            command=result.command,
            metadata=dict(result.metadata) or None,
        )
        await self.sessions.append(state.info.id, fact, *context.updates)

    async def _fail(
        self,
        state: SessionState,
        call: CallState,
        kind: FailureKind,
        error: str,
        *,
        updates: list[e.WorkContextUpdated] | None = None,
        **fields: Any,
    ) -> None:
        fact = e.CallFailed(call_id=call.call_id, tool=call.tool, kind=kind, error=error, **fields)
        await self.sessions.append(state.info.id, fact, *(updates or ()))

    def _context(self, state: SessionState, call: CallState) -> CallContext:
        session_id = state.info.id

        def show(offset: int, text: str) -> None:
            delta = Delta(session_id, call.message_id, call.id, "output", offset, text)
            self.bus.publish(session_id, [delta])

        return CallContext(
            state=state,
            author=Author(session_id, call.call_id, call.tool, self.place.folder, state.info.title),
            place=self.place,
            host=self.host,
            changes=self.changes,
            rules=self.rules,
            show=show,
        )


def _told(context: CallContext, output: str) -> str:
    """The output, with what really ran where the person changed the arguments."""
    if context.changed is None:
        return output
    ran = json.dumps(context.changed, ensure_ascii=False)
    return f"[the person changed the arguments; what ran: {ran}]\n{output}"


def _logged_args(args: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps(args, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )
    if len(body) <= MAX_LOGGED_ARGS:
        return args
    return cast("dict[str, Any]", {"sha256": hashlib.sha256(body).hexdigest()})
