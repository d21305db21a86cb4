"""Unified diffs for people. The parts of a patch are made from `diff_lines`, so their cost is bounded."""

from dataclasses import dataclass

from deskmate_session.core.lines import Change, diff_lines, line_end, split_lines

_CONTEXT = 3


@dataclass(frozen=True, slots=True)
class Diff:
    """How two versions of a text differ."""

    patch: str
    """Unified diff, three lines of context; empty when nothing differs."""
    additions: int
    deletions: int


def unified_diff(uri_path: str, before: str | None, after: str | None) -> str:
    """The patch alone; see `diff`."""
    return diff(uri_path, before, after).patch


def diff(uri_path: str, before: str | None, after: str | None) -> Diff:
    """Compare two versions; None means that the file does not exist on that side.

    `uri_path` is the name in the head, relative to the folder. Lines keep their `\\r`, as in git.
    """
    old, new = split_lines(before or ""), split_lines(after or "")
    changes = diff_lines(old, new)
    if not changes and (before is None) == (after is None):
        return Diff("", 0, 0)
    head = "/dev/null" if before is None else f"a/{uri_path}"
    foot = "/dev/null" if after is None else f"b/{uri_path}"
    parts = [f"--- {head}\n+++ {foot}\n"]
    parts += [_hunk(old, new, group) for group in _groups(changes)]
    return Diff(
        "".join(parts),
        additions=sum(change.new_end - change.new_start for change in changes),
        deletions=sum(change.end - change.start for change in changes),
    )


def _groups(changes: list[Change]) -> list[list[Change]]:
    """Changes whose context would touch stand in one hunk."""
    groups: list[list[Change]] = []
    for change in changes:
        if groups and change.start - groups[-1][-1].end <= 2 * _CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _hunk(old: list[str], new: list[str], group: list[Change]) -> str:
    lead = min(_CONTEXT, group[0].start)
    start, new_start = group[0].start - lead, group[0].new_start - lead
    trail = min(_CONTEXT, len(old) - group[-1].end)
    end, new_end = group[-1].end + trail, group[-1].new_end + trail
    lines: list[str] = []
    at = start
    for change in group:
        lines += [_line(" ", line) for line in old[at : change.start]]
        lines += [_line("-", line) for line in old[change.start : change.end]]
        lines += [_line("+", line) for line in new[change.new_start : change.new_end]]
        at = change.end
    lines += [_line(" ", line) for line in old[at:end]]
    return f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@\n" + "".join(lines)


def _line(mark: str, line: str) -> str:
    if line.endswith("\n"):
        return mark + line
    if line_end(line):  # an old Mac text: the patch itself needs its own line ends
        return f"{mark}{line}\n"
    return f"{mark}{line}\n\\ No newline at end of file\n"


def _span(start: int, end: int) -> str:
    """`first,count` from 1; an empty side names the line before it, as diff(1) does."""
    count = end - start
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"
