"""The work-context block that is sent with a prompt: what the agent knows of files and commands.

It is made from the fold at the turn's start and never changes afterwards, so that requests only grow
at their end.
"""

from urllib.parse import unquote, urlsplit

from deskmate_session.core.work_context import WorkContextFold

MAX_FILES = 40
MAX_COMMANDS = 5


def render(fold: WorkContextFold) -> str | None:
    """The block, or None when there is nothing to tell."""
    lines: list[str] = []
    files = list(fold.files.values())[-MAX_FILES:]
    if files:
        lines.append("Files you have read or changed in this session (as you last saw them):")
        for entry in files:
            state = "deleted" if entry.hash is None else "changed by you" if entry.changed else "read"
            lines.append(f"- {unquote(urlsplit(entry.uri).path)} ({state})")
    if fold.commands:
        lines.append("Commands that ran last:")
        for command in fold.commands[-MAX_COMMANDS:]:
            code = "no exit code" if command.exit_code is None else f"exit code {command.exit_code}"
            lines.append(f"- {command.command.splitlines()[0] if command.command else ''} ({code})")
    if not lines:
        return None
    return "<work-context>\n" + "\n".join(lines) + "\n</work-context>"
