"""From settings and environment to providers: who is configured, and which model a name means.

Importing this loads no HTTP library; the adapters load theirs in `load()`.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from deskmate_session.errors import ConfigError, Rejected
from deskmate_session.model.ports import Provider
from deskmate_session.model.settings import ModelSettings, ProviderSettings, Settings
from deskmate_session.providers import anthropic, openai_compatible
from deskmate_session.providers.anthropic import AnthropicProvider
from deskmate_session.providers.catalog import CATALOG, DEFAULT_MODELS, ModelInfo
from deskmate_session.providers.openai_compatible import OpenAiProvider
from deskmate_session.providers.scripted import ScriptedProvider
from deskmate_session.providers.transfer import is_local

_KEY_HEADERS = ("authorization", "x-api-key", "api-key")
_HOSTS = {"anthropic": anthropic.DEFAULT_BASE_URL, "openai": openai_compatible.DEFAULT_BASE_URL}


class Resolved(NamedTuple):
    """A model that can be asked."""

    provider: Provider
    model: str
    """Its name at the provider."""
    info: ModelInfo


class ModelChoice(NamedTuple):
    """A model that a person can choose."""

    id: str
    """`provider/model`."""
    info: ModelInfo


class KeySource(NamedTuple):
    """Where a provider's key comes from; never the key."""

    kind: Literal["configuration", "environment", "header", "script", "none"]
    name: str
    """The provider's table, the variable, the header or the script's path."""
    problem: str | None = None
    """Why the script can't be played."""


class Registry:
    """The providers of one configuration; each is made once, when first asked for."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self._default = settings.model
        self._streaming = settings.streaming
        self._configured = settings.providers
        self._providers = _with_environment(settings.providers, environment)
        self._made: dict[str, Provider] = {}

    def resolve(self, model: str | None = None) -> Resolved:
        """Find `provider/model` (None: the configured one, else what a key alone gives).

        Raises `Rejected` (`noModel`) with a hint that says what to write where.
        """
        chosen = model or self._default or self._by_key()
        if chosen is None:
            raise Rejected("noModel", "no model is configured", self._hint_for_none())
        name, _, model_name = chosen.partition("/")
        if not name or not model_name:
            raise Rejected("noModel", f"{chosen!r} is no model", "write it as 'provider/model'")
        settings = self._providers.get(name)
        if settings is None:
            raise Rejected(
                "noModel",
                f"no provider {name!r} is configured for the model {chosen!r}",
                f"set {_variable(name)} in the environment"
                if name in DEFAULT_MODELS
                else f"add [providers.{name}] with kind and base_url; configured: {self._names()}",
            )
        if (problem := _problem(name, settings)) is not None:
            raise Rejected("noModel", *problem)
        return Resolved(self._provider(name, settings), model_name, _info(name, settings, model_name))

    def models(self) -> list[ModelChoice]:
        """List the models of every usable provider: the configured ones, then the known ones.

        The default model is among them even where its provider's table does not name it.
        """
        choices: list[ModelChoice] = []
        default, _, default_model = (self._default or "").partition("/")
        for name, settings in self._providers.items():
            if _problem(name, settings) is not None:
                continue
            known = CATALOG.get(name, {}) if _is_original(name, settings) else {}
            chosen = [default_model] if name == default else []
            choices += [
                ModelChoice(f"{name}/{model}", _info(name, settings, model))
                for model in dict.fromkeys([*settings.models, *chosen, *known])
            ]
        return choices

    def key_source(self, name: str) -> KeySource:
        """Tell where a configured provider's key comes from."""
        settings, configured = self._providers[name], self._configured.get(name)
        if settings.kind == "scripted":
            return KeySource("script", settings.base_url or "", _script_problem(name, settings))
        if configured is not None and (configured.api_key or "").strip():
            return KeySource("configuration", f"[providers.{name}]")
        if settings.api_key:
            return KeySource("environment", _variable(name))
        header = next((word for word in settings.headers if word.lower() in _KEY_HEADERS), None)
        return KeySource("none", "") if header is None else KeySource("header", header)

    async def close(self) -> None:
        """Close every provider that was made."""
        made, self._made = self._made, {}
        for provider in made.values():
            await provider.close()

    def _provider(self, name: str, settings: ProviderSettings) -> Provider:
        provider = self._made.get(name)
        if provider is None:
            match settings.kind:
                case "anthropic":
                    provider = AnthropicProvider(name, settings, self._streaming)
                case "openai":
                    provider = OpenAiProvider(name, settings, self._streaming)
                case "scripted":
                    provider = ScriptedProvider.from_address(settings.base_url or "", name)
            self._made[name] = provider
        return provider

    def _by_key(self) -> str | None:
        for name, model in DEFAULT_MODELS.items():
            settings = self._providers.get(name)
            if settings is not None and settings.api_key and settings.kind == name:
                return f"{name}/{next(iter(settings.models), model)}"
        return None

    def _hint_for_none(self) -> str:
        models = [
            f"{name}/{model}" for name, settings in self._providers.items() for model in settings.models
        ]
        if models:
            return f'write model = "{models[0]}" in config.toml (configured: {", ".join(models)})'
        if self._providers:
            first = next(iter(self._providers))
            return f'write model = "{first}/MODEL" in config.toml (configured providers: {self._names()})'
        return (
            "set ANTHROPIC_API_KEY or OPENAI_API_KEY in the environment, or write a [providers.NAME] table "
            'and model = "NAME/MODEL" in config.toml; `deskmate demo` needs neither key nor network'
        )

    def _names(self) -> str:
        return ", ".join(sorted(self._providers)) or "none"


def _with_environment(
    configured: Mapping[str, ProviderSettings], environment: Mapping[str, str]
) -> dict[str, ProviderSettings]:
    """Add what the environment gives: a key for each provider without one, and the two well-known ones."""
    providers = dict(configured)
    for name in DEFAULT_MODELS:
        if name not in providers and environment.get(_variable(name)):
            providers[name] = ProviderSettings(kind="anthropic" if name == "anthropic" else "openai")
    for name, settings in providers.items():
        key = (settings.api_key or "").strip() or environment.get(_variable(name), "").strip()
        found = {"api_key": key}
        if not settings.base_url and name in DEFAULT_MODELS:
            found["base_url"] = environment.get(_variable(name, "BASE_URL"), "").strip()
        providers[name] = settings.model_copy(update={field: value or None for field, value in found.items()})
    return providers


def _problem(name: str, settings: ProviderSettings) -> tuple[str, str] | None:
    """Say why a provider can't be used, and what to do; None when it can."""
    place = f"[providers.{name}]"
    if settings.kind == "scripted":
        if settings.base_url:
            return None
        return f"provider {name!r} has no script", f"set base_url in {place} to the path of a script"
    address = settings.base_url or (_HOSTS[settings.kind] if _is_original(name, settings) else None)
    if address is None:
        return f"provider {name!r} has no address", f"set base_url in {place}"
    names_key = any(word.lower() in _KEY_HEADERS for word in settings.headers)
    if settings.api_key and not (settings.api_key.isascii() and settings.api_key.isprintable()):
        return (
            f"the API key of provider {name!r} holds characters that no key has",
            f"paste it anew in {place}",
        )
    if settings.api_key or names_key or is_local(address):
        return None
    variable = _variable(name)
    return (
        f"provider {name!r} has no API key",
        f'set {variable} in the environment, or api_key = "{{env:{variable}}}" in {place}',
    )


def _script_problem(name: str, settings: ProviderSettings) -> str | None:
    try:
        ScriptedProvider.from_address(settings.base_url or "", name).read()
    except ConfigError as error:
        return str(error)
    return None


def _is_original(name: str, settings: ProviderSettings) -> bool:
    """Say whether a provider of this kind means the well-known service, not a copy under another name."""
    return name == settings.kind or (settings.base_url or "").startswith(_HOSTS.get(settings.kind, "\0"))


def _variable(name: str, what: str = "API_KEY") -> str:
    return f"{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}_{what}"


def _info(name: str, settings: ProviderSettings, model: str) -> ModelInfo:
    known = CATALOG.get(name if name in CATALOG else settings.kind, {}).get(model, ModelInfo())
    own = settings.models.get(model, ModelSettings())
    return ModelInfo(
        own.context_window or known.context_window,
        own.max_output or known.max_output,
        known.price if _is_original(name, settings) else None,
    )
