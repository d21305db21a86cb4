"""Kernel two, the work context: the exact state of the work, folded from the same events.

Which files the agent has read or changed and what they hold (by hash), what commands ran. It knows
nothing of what was said.
"""

from deskmate_session.model import events as e
from deskmate_session.model.messages import CommandEntry, FileEntry, WorkContext

MAX_COMMANDS = 10
TAIL_LINES = 5
TAIL_CHARS = 600


class WorkContextFold:
    """The fold. Events that it does not read leave it alone."""

    __slots__ = ("commands", "files")

    def __init__(self) -> None:
        self.files: dict[str, FileEntry] = {}
        """By URI, least recently touched first."""
        self.commands: list[CommandEntry] = []
        """The last ten."""

    def apply(self, event: e.Event) -> None:
        """Fold one event."""
        match event.payload:
            case e.CallCompleted() as fact:
                for read in fact.reads:
                    known = self.files.pop(read.uri, None)
                    self.files[read.uri] = FileEntry(
                        uri=read.uri,
                        hash=read.hash,
                        seq=event.seq,
                        changed=known is not None and known.changed,
                        by=fact.call_id,
                    )
                if fact.command is not None:
                    entry = CommandEntry(
                        call_id=fact.call_id,
                        command=fact.command,
                        exit_code=fact.exit_code,
                        tail=tail(fact.output),
                        seq=event.seq,
                    )
                    self.commands = [*self.commands[-(MAX_COMMANDS - 1) :], entry]
            case e.WorkContextUpdated() as fact:
                self.files.pop(fact.uri, None)
                self.files[fact.uri] = FileEntry(
                    uri=fact.uri, hash=fact.after, seq=event.seq, changed=True, by=fact.by
                )
            case _:
                pass

    def view(self, folder: str) -> WorkContext:
        """The whole state in the wire's shape; `folder` is the session's folder URI."""
        return WorkContext(files=tuple(self.files.values()), commands=tuple(self.commands), folder=folder)


def tail(output: str) -> str:
    """The last lines of an output, at most five and 600 characters."""
    return "\n".join(output.rstrip().splitlines()[-TAIL_LINES:])[-TAIL_CHARS:]
