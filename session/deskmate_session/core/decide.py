"""From a command to facts, or a rejection. Pure: the kernel appends what this returns."""

from deskmate_session.core.conversation import MessageState, TextState
from deskmate_session.core.state import SessionState
from deskmate_session.errors import Rejected
from deskmate_session.model import commands as c, events as e
from deskmate_session.model.messages import FileInput, FilePart, Part, PartInput, TextInput, TextPart
from deskmate_session.model.ports import Ids

MAX_TITLE = 60
DEFAULT_TITLE = "New session"
RESUME = (
    "Your last turn was cut off before its end. Go on with the work that my last prompt asked for, from "
    "where it stands now; don't begin anew. Calls that ran then may have been cut off: their results say "
    "so. Where the outcome of a call is unknown, look at the files and at what the call started before you "
    "repeat it."
)
"""What the model is told when the person resumes."""


def create(command: c.CreateSession, folder: str, agent: str, model: str) -> e.SessionCreated:
    """A new session; `agent` and `model` are the defaults."""
    return e.SessionCreated(
        folder=folder,
        title=command.title or DEFAULT_TITLE,
        agent=command.agent or agent,
        model=command.model or model,
        variant=command.variant,
        mode=command.mode or "ask",
        parent_id=command.parent_id,
    )


def update(command: c.UpdateSession) -> e.SessionUpdated | None:
    """The fields that were given, or None when there are none."""
    fact = e.SessionUpdated.model_validate(command.model_dump(exclude={"session_id"}))
    return fact if any(value is not None for value in fact.model_dump().values()) else None


def receive(state: SessionState, command: c.Prompt, message_id: str, ids: Ids) -> list[e.EventPayload]:
    """The facts of a new prompt: it is received, and gives the session its title if that has none.

    Raises `Rejected` (`conflict`) if the id belongs to another prompt.
    """
    if command.delivery == "steer" and state.turn is not None:
        raise Rejected(
            "notSupported",
            "steering a running turn is not built yet",
            "send the prompt with delivery 'queue' or 'interrupt'",
        )
    facts: list[e.EventPayload] = [
        e.MessageReceived(
            message_id=message_id,
            delivery=command.delivery,
            parts=tuple(_part(part, ids) for part in command.parts),
            agent=command.agent or state.info.agent,
            model=command.model or state.info.model,
            variant=command.variant or state.info.variant,
        )
    ]
    if state.info.title == DEFAULT_TITLE and (title := title_of(command.parts)):
        facts.append(e.SessionUpdated(title=title))
    return facts


def repeated(known: MessageState, command: c.Prompt) -> MessageState:
    """The message that stands under the prompt's id, if it is this prompt, received before.

    Raises `Rejected` (`conflict`) if it held other parts.
    """
    if known.role == "user" and [_content(part) for part in known.parts] == [
        _input_content(part) for part in command.parts
    ]:
        return known
    raise Rejected(
        "conflict",
        f"message {command.message_id!r} was received before with other parts",
        "use a new messageId for a new prompt",
    )


def resume(state: SessionState, ids: Ids) -> list[e.EventPayload]:
    """The facts that go on with an idle session: a prompt of ours after a turn that was cut off or failed,
    else the release of what waits.

    Raises `Rejected` (`conflict`) when there is nothing to go on with.
    """
    if state.queue and not state.held:
        return [e.QueueReleased()]  # it is about to run: whoever resumes joins it
    if state.last_finish in ("interrupted", "error"):
        part = TextPart(id=ids.new("prt"), text=RESUME, label="resume", synthetic=True)
        return [
            e.MessageReceived(
                message_id=ids.new("msg"),
                delivery="queue",
                parts=(part,),
                agent=state.info.agent,
                model=state.info.model,
                variant=state.info.variant,
            )
        ]
    if state.queue:
        return [e.QueueReleased()]
    if state.last_finish is None:
        raise Rejected(
            "conflict",
            "there is nothing to resume: no turn has run in this session",
            "open the session whose turn was cut off, or send a prompt",
        )
    raise Rejected(
        "conflict",
        "there is nothing to resume: the newest turn ended by itself and no prompt waits",
        "send a prompt",
    )


def title_of(parts: tuple[PartInput, ...]) -> str | None:
    """A session's title from its first prompt: the first line, at most 60 characters."""
    text = next((part.text for part in parts if isinstance(part, TextInput)), "")
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    if not line:
        return None
    return line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1].rstrip() + "…"


def _part(part: PartInput, ids: Ids) -> Part:
    match part:
        case TextInput():
            return TextPart(id=ids.new("prt"), text=part.text, label=part.label)
        case FileInput():
            return FilePart(id=ids.new("prt"), uri=part.uri, range=part.range, mime=part.mime)


def _content(part: object) -> object:
    match part:
        case TextState():
            return ("text", part.text, part.label)
        case FilePart():
            return ("file", part.uri, part.range, part.mime)
        case _:
            return None


def _input_content(part: PartInput) -> object:
    match part:
        case TextInput():
            return ("text", part.text, part.label)
        case FileInput():
            return ("file", part.uri, part.range, part.mime)
