"""Settings: the same keys in the person's `config.toml` and in the editor's options.

Keys are snake_case in files; the camelCase spelling is accepted everywhere.
"""

from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from deskmate_session.model.permissions import Action


class _Settings(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="ignore",
        defer_build=True,
    )


class ModelSettings(_Settings):
    """`[providers.NAME.models.MODEL]`."""

    context_window: int | None = Field(default=None, gt=0)
    max_output: int | None = Field(default=None, gt=0)


class ProviderSettings(_Settings):
    """`[providers.NAME]`."""

    kind: Literal["anthropic", "openai", "scripted"]
    base_url: str | None = None
    """For anthropic the address before `/v1/messages`, with or without `/v1`; for openai the address
    before `/chat/completions`; for scripted the path of a script."""
    api_key: str | None = Field(default=None, repr=False)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    models: dict[str, ModelSettings] = Field(default_factory=dict)


class StreamingSettings(_Settings):
    """`[streaming]`."""

    chunk_size: int = Field(default=32, ge=0)
    """Code points that go out together; 0 = as it comes."""
    first_content_ms: int | None = Field(default=None, gt=0)
    """Longest wait for the first content; default 600,000, none for local servers."""
    idle_timeout_ms: int = Field(default=120_000, gt=0)
    """Longest wait between content."""


class ToolSettings(_Settings):
    """`[tools]`."""

    file_timeout_ms: int = Field(default=5_000, gt=0)
    command_timeout_ms: int = Field(default=120_000, gt=0)
    output_max_lines: int = Field(default=2_000, gt=0)
    output_max_bytes: int = Field(default=50_000, gt=0)


class CheckpointSettings(_Settings):
    """`[checkpoint]`."""

    interval: int = Field(default=75, gt=0)
    """Events of a session from one checkpoint to the next, at least."""


class LogSettings(_Settings):
    """`[log]`."""

    debug_tags: bool = False
    journal: Literal["auto", "wal", "rollback"] = "auto"
    """How commits are made safe. `auto`: by a write-ahead log; on network and FUSE file systems, which have
    no memory that programs share, by a rollback journal."""


class Settings(_Settings):
    """Everything that can be configured."""

    model: str | None = None
    """`provider/model`."""
    agent: str = "build"
    ask_timeout_ms: int | None = Field(default=None, gt=0)
    providers: dict[str, ProviderSettings] = Field(default_factory=dict)
    permission: dict[str, Action | dict[str, Action]] = Field(default_factory=dict)
    streaming: StreamingSettings = Field(default_factory=lambda: StreamingSettings())
    tools: ToolSettings = Field(default_factory=lambda: ToolSettings())
    checkpoint: CheckpointSettings = Field(default_factory=lambda: CheckpointSettings())
    log: LogSettings = Field(default_factory=lambda: LogSettings())

    @field_validator("model")
    @classmethod
    def _has_provider(cls, value: str | None) -> str | None:
        if value is not None and not all(value.partition("/")):
            raise ValueError(f"{value!r} is no model: write it as 'provider/model'")
        return value


_TOOL_ALIASES = {"fileTimeout": "file_timeout_ms", "commandTimeout": "command_timeout_ms"}


def accept_aliases(data: dict[str, Any]) -> dict[str, Any]:
    """Accept the contract's other names (`tools.fileTimeout`, `tools.commandTimeout`, `snapshot.interval`)
    as they are."""
    tools, snapshot = data.get("tools"), data.get("snapshot")
    if isinstance(tools, dict):
        given = cast("dict[str, Any]", tools)
        data = {**data, "tools": {_TOOL_ALIASES.get(key, key): value for key, value in given.items()}}
    if isinstance(snapshot, dict):
        data = {**data, "checkpoint": {**cast("dict[str, Any]", snapshot), **data.get("checkpoint", {})}}
        del data["snapshot"]
    return data
