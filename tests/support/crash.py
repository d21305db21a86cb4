"""A scripted session that is killed again and again, and what must hold after each kill.

async with Crashes.open(tmp_path, seed=1) as crashes:
    await crashes.round(after=17)  # killed after the 17th update of the turn

The model answers from the request alone, so that its script fits wherever the last turn was cut. Each turn
streams text, reads side by side, edits a file that is open in the editor and one that is not, creates one,
runs commands with a side effect, asks, and has a prompt waiting behind it.
"""

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.support.editor import APPLY, Editor
from tests.support.fake_provider import Request, answer, call, text
from tests.support.histories import valid_anthropic
from tests.support.lsp_client import FramingError, ServerExited
from tests.support.rig import Rig

RULES = {"read": "allow", "edit": "allow", "bash": {"*": "allow", "touch *": "ask"}}
SPAN = 115
"""Updates of a whole turn, about; those of streamed arguments not counted."""
OVER = 1_000_000
"""More updates than there are: the turn and the one behind it come to their end."""
CLOSED, OPENED, MADE = "closed.txt", "opened.txt", "made.txt"
STAYS = "trap '' PIPE; for i in 1 2 3 4 5; do echo $i; sleep 0.03; done; kill -0 $PPID || exec sleep 60"
"""A command that outlives its server by far, unless somebody ends it."""
PADDING = "a line that makes the file longer than one write\n" * 400


def words_of(request: Request) -> tuple[str, int]:
    """The newest prompt's text and how many calls were answered since."""
    said, results = "", 0
    for message in request.body["messages"]:
        blocks = message["content"]
        if message["role"] != "user":
            continue
        for block in [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks:
            if block["type"] == "tool_result":
                results += 1
            elif block["type"] == "text" and not block["text"].startswith("<work-context>"):
                said, results = block["text"], 0
    return said, results


@dataclass
class Crashes:
    """One session, killed round by round."""

    chance: random.Random
    rig: Rig = field(init=False)
    session: str = ""
    number: int = 0
    commands: int = 0
    legal: dict[str, set[str]] = field(default_factory=dict)
    """The whole contents that each file may have: by name."""
    answered: set[str] = field(default_factory=set)
    """Asks whose answer the server took."""
    prompts: dict[str, str] = field(default_factory=dict)
    """Prompts that the server accepted: their words by id."""
    seen: dict[int, str] = field(default_factory=dict)
    """Kinds of the updates that were shown, by `seq`."""
    parts: set[str] = field(default_factory=set)
    """Parts that were shown under a `seq`."""
    where: dict[str, int] = field(default_factory=dict)
    """What went on when the server died, counted: which moments the kills met."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, tmp: Path, seed: int) -> AsyncGenerator["Crashes"]:
        """A server, an editor with a file open, and a session without a turn."""
        files = {CLOSED: "version 0\n" + PADDING, OPENED: "version 0\nand a line\n"}
        self = cls(random.Random(seed))
        async with Rig.open(
            tmp,
            files=dict(files),
            default=self.reply,
            config={"permission": RULES},
            experimental={"ask": True, "save": True},
            capabilities=APPLY,
        ) as rig:
            self.rig = rig
            self.legal = {name: {content} for name, content in files.items()} | {MADE: set()}
            self.meet()
            self.session = await rig.create()
            yield self

    def meet(self) -> None:
        """A new server's editor: one file open, asks answered through `ask/reply`."""
        self.rig.ask = self.answer
        Editor(self.rig.client).open(self.rig.folder / OPENED)

    async def answer(self, ask: Any) -> Any:
        """Allow by `ask/reply`, whose answer tells that it counts; the request is withdrawn then."""
        await asyncio.sleep(0.02)  # a person's time, in which a kill finds the ask open
        told = await self.rig.call("ask/reply", askId=ask["id"], reply="once")
        if told["accepted"]:
            self.answered.add(ask["id"])
        await asyncio.get_running_loop().create_future()

    def reply(self, request: Request) -> Any:
        """The model: what it does next follows from the newest prompt and the results since."""
        said, results = words_of(request)
        if not said.startswith("round"):
            return answer(text(f"Good: {said[:20]}"))
        match results:
            case 0:
                reads = [call("read", {"path": name}) for name in (CLOSED, OPENED)]
                return answer(
                    text("I look at the files. " * 8, size=9),
                    *reads,
                    call("glob", {"pattern": "*.txt"}),
                    delta_delay_ms=2,
                )
            case 3:
                return answer(
                    call("bash", {"command": f"{self.mark()}; {STAYS}"}),
                    call("write", {"path": CLOSED, "content": self.version(CLOSED) + PADDING}),
                    call("bash", {"command": self.mark()}),
                )
            case 6:
                return answer(text("Now the other. "), self.edit(), call("read", {"path": CLOSED}))
            case 8:
                return answer(call("bash", {"command": f"touch asked; {self.mark()}"}))
            case 9:
                made = self.rig.folder / MADE
                made.unlink(missing_ok=True)
                content = self.version(MADE) + PADDING
                self.legal[MADE].add(content)
                return answer(call("write", {"path": MADE, "content": content}))
            case _:
                return answer(text("That was all of it. " * 8, size=9), delta_delay_ms=2)

    def mark(self) -> str:
        """A command that leaves a trace of its own."""
        self.commands += 1
        return f"echo {self.number}.{self.commands} >> ran"

    def version(self, name: str) -> str:
        """A first line that no version before had."""
        self.commands += 1
        line = f"version {self.commands}\n"
        if name == CLOSED:
            self.legal[name].add(line + PADDING)
        return line

    def edit(self) -> Any:
        """An edit of the open file as it is on disk; what comes of it is legal from now on."""
        old = (self.rig.folder / OPENED).read_text()
        new = self.version(OPENED)
        self.legal[OPENED].add(new + old.split("\n", 1)[1])
        return call("edit", {"path": OPENED, "old": old.split("\n", 1)[0] + "\n", "new": new})

    async def round(self, after: int = OVER, command: Sequence[str | Path] | None = None) -> bool:
        """A turn whose server is killed after so many updates and up to 15 ms; then another server, and what
        must hold. With `command` its server is started by that, which may end it at a moment of its own;
        returns whether the server ended by itself."""
        rig = self.rig
        if command is not None:
            await rig.die()
            await rig.restart(command)
            self.meet()
        self.number += 1
        sent = {f"msg_{said}{self.number}": f"{said} {self.number}" for said in ("round", "behind")}
        for prompt, said in sent.items():
            rig.start(self.session, said, prompt, messageId=prompt)
        with contextlib.suppress(ServerExited, FramingError):
            await rig.client.wait_until(lambda: self.is_time(after), timeout=60)
        if command is None:
            await asyncio.sleep(self.chance.random() * 0.015)  # so that kills come between updates, too
        ended = await rig.die()
        for prompt, said in sent.items():
            self.note(prompt, said)
        await rig.restart()
        self.meet()
        await self.nothing_is_lost()
        await self.it_goes_on(sent)
        return ended

    def is_time(self, after: int) -> bool:
        """So many updates were shown, or both turns are over."""
        values = [v for v in self.rig.client.values(f"msg_round{self.number}") if v.get("field") != "input"]
        behind = self.rig.client.values(f"msg_behind{self.number}")
        return len(values) >= after or any(v["kind"] == "status" and v["status"] == "idle" for v in behind)

    def note(self, prompt: str, said: str) -> None:
        """What the dead server showed of a prompt may not be lost."""
        for value in self.rig.client.values(prompt):
            if value["kind"] == "accepted":
                self.prompts[prompt] = said
            if "seq" in value:
                self.seen[value["seq"]] = value["kind"]
                if value["kind"] == "part":
                    self.parts.add(value["part"]["id"])

    async def events(self) -> list[Any]:
        """All of the session's events."""
        events: list[Any] = []
        while True:
            page = await self.rig.events(self.session, afterSeq=events[-1]["seq"] if events else 0)
            events += page
            if not page or len(page) < 1000:
                return events

    async def nothing_is_lost(self) -> None:
        """What holds at the first answers of the next server, before anything new is asked for."""
        rig = self.rig
        details = await rig.call("session/get", sessionId=self.session)
        assert (details["status"], details["asks"]) == ({"status": "idle"}, [])
        assert not children(rig.folder)
        events = await self.events()
        self.where[last_moment(events)] = self.where.get(last_moment(events), 0) + 1
        assert [event["index"] for event in events] == list(range(len(events)))
        assert set(self.seen) <= {event["seq"] for event in events}
        received = {of(event, "messageId") for event in events if event["type"] == "message.received"}
        assert set(self.prompts) <= received
        replied = {of(event, "askId") for event in events if of(event, "by") == "person"}
        assert self.answered <= replied
        messages: list[Any] = []
        while True:
            bound = {"before": messages[0]["seq"]} if messages else {}
            page = await rig.call("session/messages", sessionId=self.session, limit=500, **bound)
            messages = page["messages"] + messages
            if not page["hasMore"]:
                break
        parts = [part for message in messages for part in message["parts"]]
        assert self.parts <= {part["id"] for part in parts}
        assert {p["state"]["status"] for p in parts if p["type"] == "tool"} <= {"completed", "error"}
        self.files_are_whole()
        self.commands_ran_once(events)
        await rig.verified()

    def files_are_whole(self) -> None:
        """Each file holds one of its contents, and nothing else lies about."""
        folder = self.rig.folder
        assert {path.name for path in folder.iterdir()} <= {CLOSED, OPENED, MADE, "ran", "asked"}
        for name, contents in self.legal.items():
            path = folder / name
            if path.exists() or name != MADE:
                assert path.read_text() in contents, f"{name} is none of its states"

    def commands_ran_once(self, events: Sequence[Any]) -> None:
        """A trace of a command stands for a call that was on record before; none stands twice."""
        path = self.rig.folder / "ran"
        ran = path.read_text().split() if path.exists() else []
        assert len(set(ran)) == len(ran), f"a command ran twice: {ran}"
        started = {of(e, "callId"): mark_in(e) for e in events if e["type"] == "call.started"}
        assert set(ran) <= set(started.values())
        completed = {started[of(e, "callId")] for e in events if e["type"] == "call.completed"} - {""}
        assert completed <= set(ran)

    async def it_goes_on(self, sent: dict[str, str]) -> None:
        """The next prompt (or `resume`, in turns) runs, then what waited; what ran before does not again."""
        rig = self.rig
        first, behind = sent
        before = len(rig.fake.bodies)
        state = {prompt: await self.finish_of(prompt) for prompt in sent}
        if self.number % 2 and state[first] == "interrupted" and state[behind] in (None, "waits"):
            result = await rig.call("session/resume", sessionId=self.session)
        else:
            result = await rig.prompt(self.session, f"after {self.number}")
        assert result["finish"] == "stop"
        results = [await rig.prompt(self.session, said, messageId=prompt) for prompt, said in sent.items()]
        expected = ["stop" if old in (None, "waits") else old for old in state.values()]
        assert [result["finish"] for result in results] == expected
        for body in rig.fake.bodies[before:]:
            valid_anthropic(body)
        details = await rig.call("session/get", sessionId=self.session)
        assert (details["status"], details["queue"]["prompts"]) == ({"status": "idle"}, [])

    async def finish_of(self, prompt: str) -> str | None:
        """How a prompt's turn ended; `waits` where it has not begun, None where it is not in the log."""
        facts = [event for event in await self.events() if of(event, "messageId") == prompt]
        ended = [of(event, "finish") for event in facts if event["type"] == "turn.ended"]
        return ended[0] if ended else "waits" if facts else None


def of(event: Any, name: str) -> Any:
    """A field of an event's payload, or None."""
    return event["payload"].get(name)


def mark_in(event: Any) -> str:
    """The trace that a started command leaves; empty for other calls."""
    found = re.search(r"echo (\d+\.\d+) >> ran", str(event["payload"].get("args", {}).get("command", "")))
    return found.group(1) if found else ""


def children(folder: Path) -> list[str]:
    """Command lines of processes that work in the folder."""
    return [
        str(process.info["cmdline"])
        for process in psutil.process_iter(["cwd", "cmdline"])
        if process.info["cwd"] == str(folder)
    ]


def last_moment(events: Sequence[Any]) -> str:
    """What went on when the server died: the newest fact that recovery did not write."""
    for event in reversed(events):
        settled = of(event, "interrupted") or of(event, "finish") == "interrupted"
        if not (settled or of(event, "by") == "recovery" or event["type"] in ("queue.held", *_SETTLING)):
            return str(event["type"])
    return "nothing"


_SETTLING = ("change.refused", "workContext.updated")
