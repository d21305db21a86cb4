"""Settings from their layers: what is wrong is left out alone and told, what is right stays."""

from pathlib import Path
from typing import Any

from deskmate_session.config.agents import agents
from deskmate_session.config.layers import config_home, load, state_home


def settings(tmp: Path, editor: dict[str, Any], toml: str | None = None, **env: str) -> Any:
    if toml is not None:
        (tmp / "deskmate").mkdir(exist_ok=True)
        (tmp / "deskmate" / "config.toml").write_text(toml)
    return load(editor, {"XDG_CONFIG_HOME": str(tmp), **env})


def test_later_layers_win_key_by_key(tmp_path: Path) -> None:
    toml = 'model = "a/b"\nagent = "build"\n[permission.bash]\n"git *" = "allow"\n"rm *" = "deny"\n'
    loaded = settings(tmp_path, {"model": "c/d", "permission": {"bash": {"git *": "ask"}}}, toml)
    assert loaded.warnings == ()
    assert loaded.settings.model == "c/d"
    assert loaded.settings.permission == {"bash": {"git *": "ask", "rm *": "deny"}}


def test_both_spellings_and_the_contract_s_long_names_are_accepted(tmp_path: Path) -> None:
    editor = {
        "askTimeoutMs": 5,
        "streaming": {"chunkSize": 7},
        "tools": {"fileTimeout": 8, "commandTimeout": 9},
        "providers": {
            "myServer": {
                "kind": "openai",
                "baseUrl": "http://x",
                "models": {"someModel": {"contextWindow": 10}},
            }
        },
    }
    loaded = settings(tmp_path, editor, "[streaming]\nidle_timeout_ms = 6\n")
    found = loaded.settings
    assert (found.ask_timeout_ms, found.streaming.chunk_size, found.streaming.idle_timeout_ms) == (5, 7, 6)
    assert (found.tools.file_timeout_ms, found.tools.command_timeout_ms) == (8, 9)
    assert found.providers["myServer"].models["someModel"].context_window == 10


def test_one_wrong_key_costs_only_itself(tmp_path: Path) -> None:
    editor = {
        "model": "no-slash",
        "permission": {"bash": {"rm *": "deny", "ls": "perhaps"}, "edit": "never"},
        "streaming": {"chunkSize": -1, "idleTimeoutMs": 5},
        "providers": {"good": {"kind": "openai"}, "bad": {"kind": "what"}},
    }
    loaded = settings(tmp_path, editor)
    assert loaded.settings.permission == {"bash": {"rm *": "deny"}}, "a person's denies are never lost"
    assert loaded.settings.streaming.idle_timeout_ms == 5
    assert list(loaded.settings.providers) == ["good", "bad"] or list(loaded.settings.providers) == ["good"]
    told = "\n".join(loaded.warnings)
    for place in ("model", "permission.bash.ls", "permission.edit", "streaming.chunk_size", "providers.bad"):
        assert place in told


def test_a_file_that_can_t_be_read_is_told_and_the_rest_counts(tmp_path: Path) -> None:
    loaded = settings(tmp_path, {"model": "a/b"}, "model = [broken")
    assert loaded.settings.model == "a/b"
    assert "config.toml" in loaded.warnings[0]


def test_environment_variables_are_put_in_and_missing_ones_named(tmp_path: Path) -> None:
    editor = {"providers": {"p": {"kind": "openai", "api_key": "{env:KEY}", "base_url": "{env:GONE}/v1"}}}
    loaded = settings(tmp_path, editor, KEY="secret")
    provider = loaded.settings.providers["p"]
    assert (provider.api_key, provider.base_url) == ("secret", None)
    assert "GONE" in loaded.warnings[0]
    assert "secret" not in repr(loaded)


def test_unknown_keys_are_noted_and_no_error(tmp_path: Path) -> None:
    editor = {
        "modell": "a/b",
        "streaming": {"nosuch": 3},
        "permission": {"frob": "allow", "server_tool": "allow", "edit": "deny"},
        "providers": {"p": {"kind": "openai", "speed": 1}},
    }
    loaded = settings(tmp_path, editor)
    assert loaded.warnings == loaded.unknown
    named = [note.partition(": ")[2].partition(" is")[0] for note in loaded.unknown]
    assert named == ["modell", "streaming.nosuch", "permission.frob", "providers.p.speed"]
    assert loaded.settings.permission["edit"] == "deny"


def test_homes_follow_xdg(tmp_path: Path) -> None:
    assert config_home({"HOME": "/h"}) == Path("/h/.config/deskmate")
    assert state_home({"HOME": "/h"}) == Path("/h/.local/state/deskmate")
    assert state_home({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "deskmate"


def test_the_build_agent_has_a_prompt_and_a_version() -> None:
    build = agents()["build"]
    assert "Deskmate" in build.prompt and len(build.version) == 12
