"""Where a session works, and what its calls may know of the world."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deskmate_session.model.ports import ToolLimits
from deskmate_session.model.settings import Settings
from deskmate_session.runtime.options import KernelOptions

_SHORTEST_SECRET = 8
"""Characters; a shorter value of the environment is no key, only a common word that stands in one."""
_SECRET_SUFFIXES = ("_API_KEY", "_AUTH_TOKEN")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session works."""

    folder: str
    roots: tuple[str, ...]
    """Folders that count as inside, the folder first."""
    state_dir: str
    limits: ToolLimits
    environment: Mapping[str, str]
    """The server's, without what is or looks like a provider's key."""


def of(options: KernelOptions, folder: str, state_dir: str) -> Place:
    """The place of a kernel's sessions. `folder` is the real path."""
    tools = options.settings.tools
    roots = (folder, *(str(Path(root).resolve()) for root in options.roots))
    limits = ToolLimits(
        file_timeout_ms=tools.file_timeout_ms,
        command_timeout_ms=tools.command_timeout_ms,
        output_max_lines=tools.output_max_lines,
        output_max_bytes=tools.output_max_bytes,
    )
    environment = _without_secrets(options.environment, options.settings)
    return Place(folder, tuple(dict.fromkeys(roots)), state_dir, limits, environment)


def _without_secrets(environment: Mapping[str, str], settings: Settings) -> dict[str, str]:
    secrets = [provider.api_key or "" for provider in settings.providers.values()]
    secrets += [value for provider in settings.providers.values() for value in provider.headers.values()]
    return {
        name: value
        for name, value in environment.items()
        if not (
            name.endswith(_SECRET_SUFFIXES)
            or name.startswith("ANTHROPIC_")
            or (len(value) >= _SHORTEST_SECRET and any(value in secret for secret in secrets))
        )
    }
