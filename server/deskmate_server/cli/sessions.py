"""`deskmate sessions`: what the logs tell."""

import argparse
import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from deskmate_server.cli import carrying, verifying
from deskmate_server.cli.opening import failed, has_log, here, newest, opened, settings
from deskmate_server.cli.output import Output, clock, complain, harmless, one_line, shorten, stdout
from deskmate_server.cli.story import printed, story
from deskmate_session.errors import DeskmateError
from deskmate_session.kernel import Kernel, state_home, survey
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.events import ChangeApplied, LoggedEvent
from deskmate_session.model.messages import FileDiff, Session


def run(args: argparse.Namespace) -> int:
    """Run a subcommand."""
    if args.does == "list" and args.all:
        return _list_all(stdout())
    if args.does == "verify" and args.all:
        return verifying.run_all(stdout())
    folder = here()
    if args.does != "import" and not has_log(folder):
        if args.does == "list":
            stdout().line(f"no sessions in {harmless(str(folder))} yet")
            return 0
        complain(
            f"there are no sessions in {str(folder)!r} yet", "`deskmate sessions list --all` looks elsewhere"
        )
        return 1
    try:
        return asyncio.run(_do(args, stdout()))
    except DeskmateError as error:
        return failed(error)


async def _do(args: argparse.Namespace, out: Output) -> int:
    match args.does:
        case "list":
            return await _list(out)
        case "show":
            return await _show(out, args.id, args.json)
        case "verify":
            return await verifying.run(out, args.id)
        case "export":
            return await carrying.export(out, args)
        case _:
            return await carrying.take_in(out, args.file)


async def _list(out: Output) -> int:
    async with opened(settings()) as kernel:
        shown, cursor = 0, None
        while True:
            page = await kernel.query(q.ListSessions(limit=500, cursor=cursor))
            assert isinstance(page, c.SessionPage)
            _print_sessions(out, page.sessions)
            shown += len(page.sessions)
            cursor = page.next_cursor
            if cursor is None:
                break
    if not shown:
        out.line(f"no sessions in {harmless(str(here()))} yet")
    return 0


def _list_all(out: Output) -> int:
    """Every folder's sessions, looked at without opening their logs for work."""
    code, home = 0, state_home(os.environ)
    found = survey(home)
    for log in found:
        if log.problem is not None:
            complain(f"{log.state_dir}: {log.problem}")
            code = 1
        elif log.sessions:
            out.line(harmless(log.sessions[0].folder.removeprefix("file://")), "bold")
            _print_sessions(out, log.sessions)
    if not found:
        out.line(f"no sessions under {harmless(str(home))} yet")
    return code


def _print_sessions(out: Output, sessions: Iterable[Session]) -> None:
    for session in sessions:
        archived = " (archived)" if session.archived_at is not None else ""
        line = f"{session.id}  {clock(session.updated_at)}  {one_line(session.title)}{archived}"
        out.line(shorten(line, out.width) if out.terminal else line)


async def _show(out: Output, session_id: str | None, as_json: bool) -> int:
    async with opened(settings()) as kernel:
        session_id = session_id or await newest(kernel)
        events = await _events(kernel, session_id)
        if as_json:
            for event in events:
                out.json(event.dump())
            return 0
        diffs = await _diffs(kernel, session_id, events)
    began = clock(events[0].at) if events else ""
    out.line(f"{session_id}, begun {began}, in {harmless(str(Path(here())))}", "bold")
    for text, style in printed(story(events, diffs), out.width):
        out.line(text, style)
    return 0


async def _events(kernel: Kernel, session_id: str) -> list[LoggedEvent]:
    events: list[LoggedEvent] = []
    after: int | None = 0
    while after is not None:
        page = await kernel.query(q.ListEvents(session_id=session_id, after_seq=after))
        assert isinstance(page, q.EventPage)
        events += page.events
        after = page.next_seq
    return events


async def _diffs(kernel: Kernel, session_id: str, events: Iterable[LoggedEvent]) -> dict[int, FileDiff]:
    diffs: dict[int, FileDiff] = {}
    for event in events:
        if event.type == ChangeApplied.type:
            one = q.Diff(session_id=session_id, from_seq=event.seq, to_seq=event.seq)
            found = await kernel.query(one)
            if isinstance(found, c.DiffResult) and found.files:
                diffs[event.seq] = found.files[0]
    return diffs
