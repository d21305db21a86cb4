"""Settings from their layers: the person's `config.toml`, then the editor's options; later ones win."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_snake

from deskmate_session.core.permissions import PERMISSIONS
from deskmate_session.model.settings import ProviderSettings, Settings, accept_aliases

_ENV = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_TABLES_OF_NAMES = {"providers", "models", "headers"}
"""Tables whose keys are the person's own names, so their spelling is kept."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings that can be used, and what was wrong with the rest (for the person, one line each)."""

    settings: Settings
    warnings: tuple[str, ...]
    unknown: tuple[str, ...]
    """Those of the warnings that are about keys of no setting: worth a note, not a popup."""


def config_home(env: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/deskmate`."""
    base = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".config")
    return Path(base) / "deskmate"


def state_home(env: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/deskmate`."""
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(base) / "deskmate"


def load(editor: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> Loaded:
    """Read and merge the layers. What can't be used is left out with a warning; nothing is raised."""
    warnings: list[str] = []
    unknown: list[str] = []
    layers = [
        (str(config_home(env) / "config.toml"), _read_toml(config_home(env) / "config.toml", warnings)),
        ("the editor's options", dict(editor)),
    ]
    merged: dict[str, Any] = {}
    for origin, layer in layers:
        usable = _usable(origin, _snake(accept_aliases(layer)), env, warnings, unknown)
        merged = _merge(merged, usable)
    return Loaded(Settings.model_validate(merged), (*warnings, *unknown), tuple(unknown))


def _read_toml(path: Path, warnings: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        warnings.append(f"{path}: can't be read and is ignored: {error}")
        return {}


def _usable(
    origin: str,
    layer: dict[str, Any],
    env: Mapping[str, str],
    warnings: list[str],
    unknown: list[str],
) -> dict[str, Any]:
    """The layer without what can't be used: each such key, and nothing beside it, becomes a warning."""
    unset: list[str] = []
    usable = _replace_env(layer, env, unset)
    while (error := _error(usable)) is not None:
        place, what = error
        warnings.append(f"{origin}: {'.'.join(place)} is ignored: {what}")
        _remove(usable, place)
    unknown += [f"{origin}: {key} is no setting that is known and is ignored" for key in _unknown(usable)]
    warnings += [f"{origin}: environment variable {name!r} is not set" for name in dict.fromkeys(unset)]
    return usable


def _error(table: dict[str, Any]) -> tuple[list[str], str] | None:
    """A key that can't be used, as far down as one can be named, and what is wrong with it."""
    try:
        Settings.model_validate(table)
    except ValidationError as error:
        found = [
            (_place(table, item["loc"]), item["msg"])
            for item in error.errors(include_url=False, include_input=False)
        ]
        return max(found, key=lambda place_and_message: len(place_and_message[0]))
    return None


def _place(table: dict[str, Any], loc: tuple[int | str, ...]) -> list[str]:
    """The keys of an error's location; it also names members of unions, which are no keys."""
    place: list[str] = []
    at: Any = table
    for step in map(str, loc):
        key = next((k for k in (step, to_snake(step)) if isinstance(at, dict) and k in at), None)
        if key is not None:
            place.append(key)
            at = cast("dict[str, Any]", at)[key]
    return place


def _unknown(table: dict[str, Any], model: type[BaseModel] = Settings, at: str = "") -> list[str]:
    """Keys that no setting has: a slip of the pen, or a setting of another version."""
    found: list[str] = []
    for key, value in table.items():
        field = model.model_fields.get(key)
        if field is None:
            found.append(f"{at}{key}")
        elif key == "permission":
            found += [f"{at}{key}.{name}" for name in value if name not in PERMISSIONS and "_" not in name]
        elif isinstance(value, dict) and isinstance(field.annotation, type):
            found += _unknown(cast("dict[str, Any]", value), field.annotation, f"{at}{key}.")
        elif key == "providers" and isinstance(value, dict):
            for name, settings in cast("dict[str, Any]", value).items():
                found += _unknown(settings, ProviderSettings, f"{at}{key}.{name}.")
    return found


def _remove(table: dict[str, Any], place: list[str]) -> None:
    if not place:  # nothing that can be named: none of it can be trusted
        table.clear()
        return
    for step in place[:-1]:
        table = table[step]
    del table[place[-1]]


def _replace_env(table: dict[str, Any], env: Mapping[str, str], unset: list[str]) -> dict[str, Any]:
    """Replace `{env:NAME}` in every string; a key whose variable is not set is left out."""
    out: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            out[key] = _replace_env(cast("dict[str, Any]", value), env, unset)
        elif isinstance(value, str) and (missing := [n for n in _ENV.findall(value) if n not in env]):
            unset += missing
        elif isinstance(value, str):
            out[key] = _ENV.sub(lambda found: env[found.group(1)], value)
        else:
            out[key] = value
    return out


def _snake(layer: dict[str, Any], under: str = "") -> dict[str, Any]:
    """camelCase keys in snake_case, so that layers merge; keys that are names or patterns stay."""
    out: dict[str, Any] = {}
    for key, value in layer.items():
        name = key if under in _TABLES_OF_NAMES else to_snake(key)
        nested = isinstance(value, dict) and name != "permission"
        out[name] = _snake(cast("dict[str, Any]", value), name) if nested else value
    return out


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = _merge(cast("dict[str, Any]", below), cast("dict[str, Any]", value))
        else:
            merged[key] = value
    return merged
