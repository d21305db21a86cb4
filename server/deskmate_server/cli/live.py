"""Shows a turn while it goes on: streamed text, and what the calls do."""

from typing import Any

from deskmate_server.cli.output import Output, Style, harmless, one_line, shorten, wrap
from deskmate_server.cli.story import call_line, in_short

_STATES: dict[str, tuple[str, Style]] = {
    "pending": ("…", "dim"),
    "running": ("▸", "cyan"),
    "completed": ("✓", "green"),
    "error": ("✗", "red"),
}

MAX_MORE_LINES = 5
"""Lines that a call's line may go on for."""


class Live:
    """Takes `Update`s as JSON objects. Text goes to one output, calls to another; they may be the same.

    With `everything`, reasoning is shown too, and a call gets a line for each of its states, not one in all.
    """

    def __init__(self, text: Output, calls: Output, *, everything: bool = False) -> None:
        self._text = text
        self._calls = calls
        self._everything = everything
        self._kinds: dict[str, str] = {}
        self._shown: dict[str, int] = {}
        """Code points that were printed, by part."""
        self._states: dict[str, str] = {}
        self._current = ""

    def show(self, update: dict[str, Any]) -> None:
        """Show one update."""
        match update["kind"]:
            case "delta" if update["field"] == "text":
                self._append(update["partId"], update["offset"], update["text"])
            case "part":
                self._part(update["part"])
            case "message" if update["message"]["role"] == "assistant":
                for part in update["message"]["parts"]:
                    self._part(part)
            case "status" if update["status"] == "retrying":
                self._calls.line(f"trying again: {one_line(str(update.get('message') or ''))}", "yellow")
            case _:
                pass

    def _part(self, part: dict[str, Any]) -> None:
        self._kinds[part["id"]] = part["type"]
        match part["type"]:
            case "text" | "reasoning":
                self._append(part["id"], 0, part["text"])
            case "tool":
                self._call(part)
            case _:
                pass

    def _append(self, part_id: str, offset: int, text: str) -> None:
        """Print what is new; offsets tell what was printed before, as a client that reads slowly needs."""
        shown = self._shown.get(part_id, 0)
        new = text[max(0, shown - offset) :]
        reasoning = self._kinds.get(part_id) == "reasoning"
        if not new or (reasoning and not self._everything):
            return
        self._shown[part_id] = offset + len(text)
        if part_id != self._current:
            self.end_text()
            self._current = part_id
        self._text.write(harmless(new), "dim" if reasoning else "plain")

    def end_text(self) -> None:
        """What comes next begins on a new line."""
        if self._current:
            self._text.finish_line()
            self._current = ""

    def _call(self, part: dict[str, Any]) -> None:
        state = part["state"]
        status: str = state["status"]
        if self._states.get(part["callId"]) == status or (
            # While its arguments stream, a call has nothing to say yet.
            status == "pending" and not isinstance(state.get("input"), dict)
        ):
            return
        self._states[part["callId"]] = status
        if status in ("pending", "running") and not self._everything:
            return
        self.end_text()
        mark, style = _STATES[status]
        line = call_line(part["tool"], state.get("input"))
        if status == "completed":
            line += f": {in_short(part['tool'], state.get('output') or '', state.get('exitCode'))}"
            if not state.get("success", True):
                mark, style = _STATES["error"]
        elif status == "error":
            line += f": {one_line(state.get('error') or 'failed')}"
        self._tell(f"{mark} {line}", style, whole=status == "error")

    def _tell(self, line: str, style: Style, *, whole: bool) -> None:
        """A call's line, cut on a terminal; not in a pipe, and not where it says why a call failed."""
        if self._calls.terminal and not whole:
            self._calls.line(shorten(line, self._calls.width), style)
            return
        first, *rest = wrap(line, self._calls.width - 2, "  ")
        if len(rest) > MAX_MORE_LINES:
            rest = [*rest[:MAX_MORE_LINES], "  …"]
        for piece in (first.removeprefix("  "), *rest):
            self._calls.line(piece, style)
