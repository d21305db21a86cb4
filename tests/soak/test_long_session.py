"""A session of many turns: its steps stay cheap and it stays whole."""

from pathlib import Path

import psutil
import pytest

from tests.support.fake_provider import answer, call, text
from tests.support.rig import ALLOW_ALL, Rig

pytestmark = pytest.mark.soak


async def test_a_long_session_stays_whole_and_its_steps_stay_cheap(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, config={"permission": ALLOW_ALL}, files={"a.txt": "x\n" * 50}) as rig:
        session = await rig.create()
        for turn in range(200):
            rig.fake.add(*(answer(call("read", {"path": "a.txt"})) for _ in range(4)), answer(text("ok")))
            assert (await rig.prompt(session, f"turn {turn}"))["finish"] == "stop"
        server = psutil.Process(rig.client.process.pid)
        assert server.memory_info().rss < 300 * 2**20
        await rig.verified()
        await rig.restart()
        assert (await rig.call("session/get", sessionId=session))["status"] == {"status": "idle"}
