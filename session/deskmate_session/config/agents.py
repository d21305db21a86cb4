"""Agents: who answers. For now `build`, whose prompt stands in `build.md` beside this file."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent: its prompt is the first system block of its requests."""

    name: str
    description: str
    prompt: str

    @property
    def version(self) -> str:
        """Twelve hex digits that change with the prompt."""
        return hashlib.sha256(self.prompt.encode()).hexdigest()[:12]


@cache
def agents() -> dict[str, Agent]:
    """All agents by name."""
    prompt = resources.files("deskmate_session.config").joinpath("build.md").read_text(encoding="utf-8")
    build = Agent("build", "Reads, edits and runs commands in the workspace, asking first.", prompt.strip())
    return {build.name: build}
