"""The method table: what a client may ask, what the server asks back, and the shapes of both.

The table is all there is to know about a method besides what it does: the generic handler is fed by it, the
handshake lists it, and documents, schema, TypeScript and Lua types are generated from it.
"""

from dataclasses import dataclass
from typing import Literal

from deskmate_session.model import commands, queries
from deskmate_session.model.base import Wire
from deskmate_session.model.messages import Ask, Session, TurnResult

PROTOCOL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Method:
    """A request: the shape of its one object, the shape of its answer, and a line for the reader."""

    params: type[Wire]
    result: type[Wire]
    summary: str
    streams: bool = False
    """It takes a `partialResultToken`, under which `Update`s come as `$/progress`."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A message that nobody answers."""

    params: type[Wire]
    summary: str


class AskPerson(Wire):
    """`deskmate/ask`: what the person is asked."""

    ask: Ask


class Changed(Wire):
    """`deskmate/changed`: something that a client may show is no longer as it was."""

    what: Literal["sessions", "catalog", "permissions", "attention"]


METHODS: dict[str, Method] = {
    "deskmate/session/create": Method(
        commands.CreateSession,
        Session,
        "Begins a session in a folder. With an `id` that exists already, answers that session.",
    ),
    "deskmate/session/list": Method(
        queries.ListSessions,
        commands.SessionPage,
        "Lists sessions, newest activity first.",
    ),
    "deskmate/session/get": Method(
        queries.GetSession,
        queries.SessionDetails,
        "Tells a session with its status, queue, open asks, usage and work context.",
    ),
    "deskmate/session/messages": Method(
        queries.ListMessages,
        queries.MessagePage,
        "Reads a page of messages: the newest without bounds, oldest first inside a page.",
    ),
    "deskmate/session/update": Method(
        commands.UpdateSession,
        Session,
        "Changes fields of a session; absent ones stay. Answers the whole session.",
    ),
    "deskmate/session/delete": Method(
        commands.DeleteSession,
        commands.Nothing,
        "Takes a session from all lists; its payloads are erased later, its event headers stay.",
    ),
    "deskmate/session/fork": Method(
        commands.ForkSession,
        Session,
        "Begins a session where another one stood; that one is untouched. Grants and changes stay there.",
    ),
    "deskmate/session/prompt": Method(
        commands.Prompt,
        TurnResult,
        "Gives the agent work. Answers when the turn has ended; a failed turn is a result, not an error.",
        streams=True,
    ),
    "deskmate/session/resume": Method(
        commands.Resume,
        TurnResult,
        "Goes on with a turn that was cut off, else starts a held queue; joins a running turn.",
        streams=True,
    ),
    "deskmate/session/interrupt": Method(
        commands.Interrupt,
        commands.Interrupted,
        "Stops the running turn. Answers when clean-up is finished and logged.",
    ),
    "deskmate/session/unqueue": Method(
        commands.Unqueue,
        commands.Unqueued,
        "Takes back a prompt that still waits.",
    ),
    "deskmate/session/subscribe": Method(
        queries.Subscribe,
        queries.Subscribed,
        "Follows a session, or a whole folder: replay after `fromSeq`, then live; without it live only.",
        streams=True,
    ),
    "deskmate/session/unsubscribe": Method(
        queries.Unsubscribe,
        commands.Nothing,
        "Ends a subscription.",
    ),
    "deskmate/session/events": Method(
        queries.ListEvents,
        queries.EventPage,
        "Reads the log itself, in order of `seq`.",
    ),
    "deskmate/session/stateAt": Method(
        queries.StateAt,
        queries.SessionAt,
        "Tells how a session stood after an event, or at a time, and what that event changed.",
    ),
    "deskmate/session/export": Method(
        queries.Export,
        queries.Exported,
        "Gives a session as JSON lines, whose chain can be checked anywhere, or as Markdown.",
    ),
    "deskmate/session/import": Method(
        commands.ImportSession,
        Session,
        "Takes in an exported session under a new id, after its chain was checked.",
    ),
    "deskmate/session/diff": Method(
        queries.Diff,
        commands.DiffResult,
        "Tells what the session authored, file by file.",
    ),
    "deskmate/session/verify": Method(
        queries.Verify,
        commands.Verified,
        "Checks the log: links, gaps, digests, objects, and that the read model equals replay.",
    ),
    "deskmate/ask/list": Method(
        queries.ListAsks,
        queries.AskList,
        "Lists what the person is being asked.",
    ),
    "deskmate/ask/reply": Method(
        commands.ReplyAsk,
        commands.Replied,
        "Answers an ask. The first answer wins; every other editor sees the ask withdrawn.",
    ),
    "deskmate/catalog": Method(
        queries.GetCatalog,
        queries.Catalog,
        "Tells which agents, models, commands and tools a folder has.",
    ),
}
"""Client → server, in the order of the documents."""

CLIENT_REQUESTS: dict[str, Method] = {
    "deskmate/ask": Method(
        AskPerson,
        commands.AskAnswer,
        "Asks the person. Sent where the client offers `ask`; cancelled when the ask is settled elsewhere.",
    ),
}
"""Server → client requests."""

CLIENT_NOTIFICATIONS: dict[str, Notification] = {
    "deskmate/changed": Notification(Changed, "A list that the client may show should be read again."),
}
"""Server → client notifications."""
