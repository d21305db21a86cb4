"""The system blocks of a request. What never varies comes first, so that a provider's cache holds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the agent works; the same for every request of a session."""

    folder: str
    """Path of the workspace folder."""
    platform: str
    """Such as `Linux`."""
    is_git: bool


def system_blocks(prompt: str, environment: Environment) -> tuple[str, ...]:
    """The agent's prompt, then the environment."""
    git = "a git repository" if environment.is_git else "not a git repository"
    place = f"Workspace folder: {environment.folder} ({git})\nPlatform: {environment.platform}"
    return (prompt, place)
