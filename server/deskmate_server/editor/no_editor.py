"""The `Host` of a headless run. It stands apart so that a command line never loads the LSP library."""

from collections.abc import Sequence

from deskmate_session.model.edits import ApplyOutcome, OpenDocument, TextChange


class NoEditor:
    """The `Host` of a headless run: nothing is open."""

    def document(self, path: str) -> OpenDocument | None:
        """Nothing is open."""
        return None

    def can_apply(self) -> bool:
        """There is no editor."""
        return False

    async def apply(
        self, path: str, before: str, changes: Sequence[TextChange], after: str, label: str
    ) -> ApplyOutcome:
        """Refuse: there is no editor."""
        return ApplyOutcome(False, None, False, None, "there is no editor")
