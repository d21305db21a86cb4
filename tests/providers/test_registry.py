"""Who is configured, which model a name means, and what to do when none is."""

import subprocess
import sys
from typing import Any

import pytest

from deskmate_session.errors import Rejected
from deskmate_session.model.messages import Usage
from deskmate_session.model.settings import Settings
from deskmate_session.providers.catalog import CATALOG, DEFAULT_MODELS, ModelInfo
from deskmate_session.providers.registry import Registry
from tests.providers.support import hear
from tests.support.fake_provider import FakeProvider, answer, text

MOCK: dict[str, Any] = {
    "kind": "anthropic",
    "base_url": "http://127.0.0.1:4010/v1",
    "models": {"test": {"context_window": 1000}},
}
REMOTE: dict[str, Any] = {"kind": "openai", "base_url": "https://models.example.org/v1"}


def registry(environment: dict[str, str] | None = None, **settings: Any) -> Registry:
    return Registry(Settings.model_validate(settings), environment or {})


def refusal(made: Registry, model: str | None = None) -> tuple[str, str, str]:
    with pytest.raises(Rejected) as caught:
        made.resolve(model)
    return caught.value.kind, caught.value.message, caught.value.hint or ""


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_key_with_its_base_url_is_enough_to_start(kind: str) -> None:
    with FakeProvider([answer(text("hi"))]) as fp:
        made = registry({f"{kind.upper()}_API_KEY": "sk-1234567", f"{kind.upper()}_BASE_URL": fp.base_url})
        provider, model, info = made.resolve()
        assert (provider.name, model) == (kind, DEFAULT_MODELS[kind])
        assert info == CATALOG[kind][model]
        await provider.load()
        assert (await hear(provider)).blocks == [("text", "hi")]
        assert fp.requests[0].headers["authorization"] == "Bearer sk-1234567"
        await made.close()


def test_what_is_configured_wins_and_providers_are_made_once() -> None:
    made = registry({"ANTHROPIC_API_KEY": "sk-1234567"}, model="mock/test", providers={"mock": MOCK})
    provider, model, info = made.resolve()
    assert (provider.name, model, info) == ("mock", "test", ModelInfo(context_window=1000))
    assert made.resolve("mock/other/with/slashes").provider is provider
    assert made.resolve("anthropic/claude-sonnet-4-5").info.context_window == 200_000
    ids = [choice.id for choice in made.models()]
    assert ids[0] == "mock/test"
    assert "anthropic/claude-sonnet-5-5" in ids


def test_no_model_says_what_to_do() -> None:
    kind, _, hint = refusal(registry())
    assert kind == "noModel"
    assert "ANTHROPIC_API_KEY" in hint
    assert "OPENAI_API_KEY" in hint
    assert 'model = "mock/test"' in refusal(registry(providers={"mock": MOCK}))[2]
    assert 'model = "far/MODEL"' in refusal(registry(providers={"far": REMOTE}))[2]


def test_a_remote_provider_without_a_key_names_the_variable() -> None:
    far = registry(providers={"far-away": REMOTE})
    assert refusal(far, "far-away/x") == (
        "noModel",
        "provider 'far-away' has no API key",
        "set FAR_AWAY_API_KEY in the environment, "
        'or api_key = "{env:FAR_AWAY_API_KEY}" in [providers.far-away]',
    )
    assert far.models() == []
    assert registry({"FAR_AWAY_API_KEY": "sk-1"}, providers={"far-away": REMOTE}).resolve("far-away/x")
    assert refusal(registry(), "anthropic/x")[2] == "set ANTHROPIC_API_KEY in the environment"
    assert "[providers.who]" in refusal(registry(), "who/x")[2]
    assert refusal(registry(), "nonsense")[0] == "noModel"
    assert "no address" in refusal(registry(providers={"x": {"kind": "openai"}}), "x/y")[1]
    assert "no script" in refusal(registry(providers={"x": {"kind": "scripted"}}), "x/y")[1]


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost:11434/v1",
        "http://[::1]:1/v1",
        "http://192.168.1.5/v1",
        "http://ollama:11434/v1",
        "http://10.0.0.1",
    ],
)
def test_local_servers_need_no_key(address: str) -> None:
    assert registry(providers={"x": {"kind": "openai", "base_url": address}}).resolve("x/y")


def test_no_repr_and_no_refusal_shows_a_key() -> None:
    bad = "sk-secret\nsecond-line"
    made = registry(providers={"far": {**REMOTE, "api_key": bad}})
    shown = " ".join(refusal(made, "far/x"))
    good = registry(providers={"far": {**REMOTE, "api_key": "sk-secret-9"}}).resolve("far/x")
    assert "sk-secret" not in f"{shown} {made!r} {good!r} {vars(good.provider)['_secrets']!r}"


def test_a_cost_is_rounded_up_and_unknown_without_a_price() -> None:
    usage = Usage(input=1_000, output=100, cache_read=10_000, cache_write=1)
    assert CATALOG["anthropic"]["claude-sonnet-4-5"].cost(usage) == 3_000 + 1_500 + 3_000 + 4
    assert ModelInfo().cost(usage) is None


def test_importing_the_registry_loads_no_http_library() -> None:
    code = (
        "import sys; import deskmate_session.providers.registry, deskmate_session.providers.scripted, "
        "deskmate_session.providers.sse; "
        "found = {'httpx', 'httpx2', 'anthropic', 'openai'} & set(sys.modules); assert not found, found"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert ran.returncode == 0, ran.stderr
