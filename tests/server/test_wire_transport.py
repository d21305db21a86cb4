"""One connection over stdio: strays, stalls, and every way to end."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from deskmate_server.wire.inbound import Inbox
from deskmate_server.wire.outbound import OutWriter
from deskmate_server.wire.parents import is_alive
from tests.support.lsp_client import LspClient, frame

REPO = Path(__file__).parents[2]
FAKE = [sys.executable, "-m", "tests.support.wire_fake"]
ENV = {"PYTHONPATH": "server:session:."}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[LspClient]:
    async with await LspClient.start(FAKE, cwd=REPO, env=ENV) as client:
        await client.initialize(tmp_path)
        yield client


async def test_L01_stray_output_never_reaches_the_protocol(client: LspClient) -> None:
    await client.request("fake/stray")
    for number in range(100):
        assert await client.request("fake/note", {"number": number}) == {"number": number}
    for stray in (b"stray print", b"stray write", b"stray child"):
        await client.wait_until(lambda stray=stray: stray in client.stderr)
    # H02: a child that reads stdin finds its end, not our stream.
    assert b"got:[]" in client.stderr


async def test_a_client_that_does_not_read_leaves_the_loop_alive(client: LspClient) -> None:
    await client.request("fake/tick")
    client.pause()
    flood = client.send("fake/flood", {"number": 2000})
    later = client.send("fake/nothing")
    # 20 MB are queued behind a full pipe; the loop ticks on.
    await client.wait_until(lambda: client.stderr.count(b"tick") > 100)
    assert not later.done()
    client.resume()
    assert await flood == {"sent": 2000}
    assert await later is None
    assert [params["number"] for params in client.received("fake/flood")] == list(range(2000))


async def test_exit_after_shutdown_is_zero_and_stops_in_order(client: LspClient) -> None:
    assert await client.shutdown() == 0
    assert b"stopped in order" in client.stderr
    assert client.received("fake/goodbye") == [None]


async def test_exit_alone_is_one(client: LspClient) -> None:
    client.notify("exit")
    assert await client.wait_exit() == 1
    assert b"stopped in order" in client.stderr


async def test_end_of_input_is_one_and_what_came_before_is_done(client: LspClient) -> None:
    last = client.send("fake/note", {"number": 1})
    client.close_stdin()
    assert await last == {"number": 1}
    assert await client.wait_exit() == 1
    assert b"stopped in order" in client.stderr


async def test_exit_is_heeded_although_nobody_reads(client: LspClient) -> None:
    client.pause()
    client.send("fake/flood", {"number": 2000})
    client.send("shutdown")
    client.notify("exit")
    client.close_stdin()
    await client.wait_until(lambda: b"bytes unread" in client.stderr)
    client.resume()
    assert await client.wait_exit() == 0


async def test_a_broken_pipe_ends_the_server() -> None:
    process = await asyncio.create_subprocess_exec(
        *FAKE,
        cwd=REPO,
        env={**os.environ, **ENV},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    transport = cast("Any", process)._transport
    transport.get_pipe_transport(1).close()
    params: Any = {"capabilities": {}}
    process.stdin.write(frame({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))
    assert await asyncio.wait_for(process.wait(), 20) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_stops_in_order(client: LspClient, number: signal.Signals) -> None:
    client.process.send_signal(number)
    assert await client.wait_exit() == 1
    assert b"stopped in order" in client.stderr


async def test_a_stop_that_hangs_is_left_behind(tmp_path: Path) -> None:
    env = {**ENV, "FAKE_DEADLINE": "0.2"}
    async with await LspClient.start([*FAKE, "--hang"], cwd=REPO, env=env) as client:
        await client.initialize(tmp_path)
        assert await client.shutdown() == 0
        assert b"leaving now" in client.stderr


async def test_a_second_signal_cuts_the_stop_short(tmp_path: Path) -> None:
    env = {**ENV, "FAKE_DEADLINE": "600"}
    async with await LspClient.start([*FAKE, "--hang"], cwd=REPO, env=env) as client:
        await client.initialize(tmp_path)
        client.process.send_signal(signal.SIGTERM)
        await client.wait_until(lambda: b"stopped in order" in client.stderr)
        client.process.send_signal(signal.SIGTERM)
        assert await client.wait_exit() == 1


async def test_the_death_of_the_clients_process_ends_the_server(tmp_path: Path) -> None:
    editor = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
    async with await LspClient.start(FAKE, cwd=REPO, env=ENV) as client:
        await client.initialize(tmp_path, process_id=editor.pid)
        await client.request("fake/nothing")
        editor.kill()
        assert await client.wait_exit() == 1
        assert b"stopped in order" in client.stderr
    await editor.wait()


async def test_a_process_id_from_elsewhere_is_not_a_dead_client(tmp_path: Path) -> None:
    async with await LspClient.start(FAKE, cwd=REPO, env=ENV) as client:
        await client.initialize(tmp_path, process_id=2**22 + 1)
        await client.wait_until(lambda: b"not to be seen from here" in client.stderr)
        assert await client.shutdown() == 0


async def test_the_death_of_our_parent_ends_the_server(tmp_path: Path) -> None:
    """The parent dies while somebody else still holds the pipes open."""
    pid_file = tmp_path / "pid"
    script = f'exec 3<&0; {sys.executable} -m tests.support.wire_fake <&3 & echo $! > "{pid_file}"; sleep 600'
    async with await LspClient.start(["sh", "-c", script], cwd=REPO, env=ENV) as client:
        await client.initialize(tmp_path)
        server = int(pid_file.read_text())
        assert is_alive(server)
        client.process.kill()
        assert await client.wait_for("fake/goodbye") is None


def test_a_zombie_is_dead() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert not is_alive(child)
    finally:
        os.waitpid(child, 0)
    assert not is_alive(child)
    assert is_alive(os.getpid())


async def test_a_full_inbox_holds_the_reader_until_the_loop_has_made_room() -> None:
    inbox = Inbox(max_bytes=10, max_frames=100)
    told: list[str] = []
    assert inbox.put(b"x" * 50, lambda: told.append("first"))
    second = asyncio.create_task(asyncio.to_thread(inbox.put, b"y", lambda: told.append("second")))
    while not told:
        await asyncio.sleep(0)
    assert inbox.take() == [b"x" * 50]
    assert not second.done()
    inbox.release(50)
    assert await second
    assert inbox.take() == [b"y"]
    third = asyncio.create_task(asyncio.to_thread(inbox.put, b"z" * 10, lambda: told.append("third")))
    while "third" not in told:
        await asyncio.sleep(0)
    inbox.close()
    assert not await third


async def test_a_client_that_never_reads_is_given_up_on() -> None:
    read_fd, write_fd = os.pipe()
    broken = asyncio.Event()
    writer = OutWriter(write_fd, asyncio.get_running_loop(), broken.set, high_water=1000, hard_limit=1 << 20)
    try:
        writer.write(b"x" * (200 << 10))
        waiting = asyncio.create_task(writer.drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        assert writer.backlog > 1000
        writer.write(b"x" * (2 << 20))
        assert broken.is_set()
        await waiting
        writer.write(b"dropped")
    finally:
        os.close(read_fd)
        await writer.close()
        os.close(write_fd)


async def test_all_that_was_queued_is_written_before_the_end() -> None:
    read_fd, write_fd = os.pipe()
    writer = OutWriter(write_fd, asyncio.get_running_loop(), lambda: None)
    for number in range(100):
        writer.write(b"%d," % number)
    await writer.close()
    assert os.read(read_fd, 10_000) == b"".join(b"%d," % number for number in range(100))
    os.close(read_fd)
    os.close(write_fd)
