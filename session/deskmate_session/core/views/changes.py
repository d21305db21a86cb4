"""What a session authored, from its change facts: one diff for each file."""

from collections.abc import Iterable

from deskmate_session.core.diffs import diff
from deskmate_session.model import events as e
from deskmate_session.model.messages import FileDiff


def authored(
    facts: Iterable[e.ChangeApplied | e.ChangeObserved],
) -> dict[str, tuple[str | None, str | None]]:
    """By URI: the object hash before the first and after the last change. What came out even is left out."""
    spans: dict[str, tuple[str | None, str | None]] = {}
    for fact in facts:
        first, _ = spans.get(fact.uri, (fact.before, None))
        spans[fact.uri] = (first, fact.after)
    return {uri: span for uri, span in spans.items() if span[0] != span[1]}


def file_diff(uri: str, name: str, before: bytes | None, after: bytes | None) -> FileDiff:
    """One file's diff; `name` is the path that the patch shows."""
    status = "added" if before is None else "deleted" if after is None else "modified"
    old, new = _text(before), _text(after)
    if old is None or new is None:
        return FileDiff(uri=uri, status=status, additions=0, deletions=0, patch="", binary=True)
    found = diff(name, None if before is None else old, None if after is None else new)
    return FileDiff(
        uri=uri, status=status, additions=found.additions, deletions=found.deletions, patch=found.patch
    )


def _text(content: bytes | None) -> str | None:
    if content is None:
        return ""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None if b"\0" in content else content.decode("latin-1")
