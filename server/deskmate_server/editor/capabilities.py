"""What the client can do, read once from `initialize`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from lsprotocol import types

from deskmate_server.editor import uris


@dataclass(frozen=True, slots=True)
class Client:
    """The client as it described itself."""

    folders: tuple[str, ...] = ()
    """Workspace folders as URIs, in the client's spelling."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`initializationOptions.deskmate`."""
    offers: frozenset[str] = frozenset()
    """Server→client requests of ours that it answers: `ask`, `save`, …"""
    apply_edit: bool = False
    document_changes: bool = False
    change_annotations: bool = False
    work_done_progress: bool = False

    @classmethod
    def of(cls, params: types.InitializeParams) -> "Client":
        """Read `initialize`; what is missing or odd counts as not offered."""
        capabilities = params.capabilities
        workspace = capabilities.workspace
        edit = workspace.workspace_edit if workspace else None
        offered = _object(_object(capabilities.experimental).get("deskmate"))
        return cls(
            folders=_folders(params),
            options=_object(_object(params.initialization_options).get("deskmate")),
            offers=frozenset(name for name, value in offered.items() if value is True),
            apply_edit=bool(workspace and workspace.apply_edit),
            document_changes=bool(edit and edit.document_changes),
            change_annotations=bool(edit and edit.change_annotation_support),
            work_done_progress=bool(capabilities.window and capabilities.window.work_done_progress),
        )


def _folders(params: types.InitializeParams) -> tuple[str, ...]:
    if params.workspace_folders:
        return tuple(folder.uri for folder in params.workspace_folders)
    if params.root_uri:
        return (params.root_uri,)
    return (uris.to_uri(uris.real_path(Path(params.root_path))),) if params.root_path else ()


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
