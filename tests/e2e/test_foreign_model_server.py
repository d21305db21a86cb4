"""The same turn against a model server that this project did not write (PyPI `llmock`), on both wires."""

from pathlib import Path

import pytest
from llmock.scenarios import Fail, Reply, StreamFault, ToolCall
from llmock.testing import LLMockServer

from tests.e2e.test_turn import CONFIG, TURN, story
from tests.support.rig import Rig

EDIT = {"path": "config.py", "old": "TIMEOUT = 10", "new": "TIMEOUT = 30"}


def provider(kind: str, server: LLMockServer) -> dict[str, object]:
    return {"kind": kind, "base_url": server.base_url(kind), "api_key": "test-key"}


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_foreign_server_leaves_the_same_story_as_ours(tmp_path: Path, kind: str) -> None:
    stories = []
    with LLMockServer() as server:
        server.state.scenarios.add(
            Reply(tool_calls=(ToolCall("read", {"path": "config.py"}),)),
            Reply(tool_calls=(ToolCall("edit", EDIT),)),
            Reply(tool_calls=(ToolCall("bash", {"command": "cat config.py"}),)),
            Reply(text="The timeout is 30 s now."),
        )
        for name, config in (("foreign", {"providers": {"mock": provider(kind, server)}}), ("own", {})):
            async with Rig.open(
                tmp_path / name, TURN, kind=kind, config=config, files={"config.py": CONFIG}
            ) as rig:
                session = await rig.create()
                result = await rig.prompt(session, "Set the timeout to 30 s")
                assert (result["finish"], result["steps"]) == ("stop", 4)
                assert (rig.folder / "config.py").read_text() == "TIMEOUT = 30\nRETRIES = 3\n"
                assert (await rig.text(session)).endswith("The timeout is 30 s now.")
                await rig.verified()
                stories.append(
                    [fact for fact in story(await rig.events(session)) if not fact[0].startswith("part.")]
                )
    assert stories[0] == stories[1]


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_its_faults_are_failed_turns_and_the_session_goes_on(tmp_path: Path, kind: str) -> None:
    with LLMockServer() as server:
        server.state.scenarios.add(
            Fail(529 if kind == "anthropic" else 503),
            StreamFault("disconnect", after_chunks=2),
            Reply(text="fine again"),
        )
        async with Rig.open(tmp_path, config={"providers": {"mock": provider(kind, server)}}) as rig:
            session = await rig.create()
            kinds = []
            for _ in range(2):
                result = await rig.prompt(session, "hello")
                assert result["finish"] == "error"
                kinds.append(result["error"]["kind"])
            assert kinds[0] == "providerUnavailable"
            assert kinds[1] in ("providerUnavailable", "badResponse")
            assert (await rig.prompt(session, "hello"))["finish"] == "stop"
