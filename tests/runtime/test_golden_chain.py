"""The example chain of the contract: those facts in that order, and what each kernel knows afterwards."""

import hashlib
from pathlib import Path
from typing import Any

from deskmate_session.core.views.timeline import message_view
from deskmate_session.workspace.objects import Objects
from tests.runtime.support import create, folded, kernel, logged, prompt, read_log

SCRIPT = """
# turn
## answer
call read {"path": "config"}
## answer
call write {"path": "config", "content": "timeout = 30\\n"}
## answer
say: The timeout is 30 s now.
"""
BEFORE, AFTER = "timeout = 10\n", "timeout = 30\n"
CHAIN = [
    "message.received",
    "context.constructed",
    "model.responded",
    "call.started",
    "call.completed",
    "context.constructed",
    "model.responded",
    "call.started",
    "call.completed",
    "workContext.updated",
    "context.constructed",
    "model.responded",
    "turn.ended",
]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def test_the_example_of_the_contract_leaves_exactly_this_chain(tmp_path: Path) -> None:
    async with kernel(tmp_path, SCRIPT, files={"config": BEFORE}) as opened:
        session = await create(opened)
        result = await prompt(opened, session, "Set the timeout in config to 30 s")
        events = await logged(opened, session)
        state_dir, uri = opened.state_dir, f"{opened.folder_uri}/config"
    assert result.finish == "stop"
    named = [event for event in events if event["type"] in CHAIN]
    assert [event["type"] for event in named] == CHAIN
    assert (tmp_path / "work" / "config").read_text() == AFTER

    read, write = (event["payload"] for event in named if event["type"] == "call.completed")
    assert read["reads"] == [{"uri": uri, "hash": sha(BEFORE)}]
    assert (read["tool"], read["success"], write["tool"], write["success"]) == ("read", True, "write", True)
    updated = next(event["payload"] for event in named if event["type"] == "workContext.updated")
    assert updated == {
        "uri": uri,
        "change": "modified",
        "before": sha(BEFORE),
        "after": sha(AFTER),
        "by": "call_2",
    }
    responded = [event["payload"] for event in named if event["type"] == "model.responded"]
    assert [(r["step"], r["kind"], r["finish"], r["confidence"]) for r in responded] == [
        (1, "toolCalls", "toolCalls", "deterministic"),
        (2, "toolCalls", "toolCalls", "deterministic"),
        (3, "text", "stop", "nonDeterministic"),
    ]

    state = folded(await read_log(state_dir, session))
    assert _conversation(state) == [
        ("user", [("text", "Set the timeout in config to 30 s")]),
        ("assistant", [("tool", "read", {"path": "config"}, "completed")]),
        ("assistant", [("tool", "write", {"path": "config", "content": AFTER}, "completed")]),
        ("assistant", [("text", "The timeout is 30 s now.")]),
    ]
    context = state.work_context.view(state.info.folder).dump()
    assert context == {
        "folder": state.info.folder,
        "commands": [],
        "files": [
            {
                "uri": uri,
                "hash": sha(AFTER),
                "seq": context["files"][0]["seq"],
                "changed": True,
                "by": "call_2",
            }
        ],
    }


async def test_each_kernel_answers_its_own_question_alone(tmp_path: Path) -> None:
    async with kernel(tmp_path, SCRIPT, files={"config": BEFORE}) as opened:
        session = await create(opened)
        await prompt(opened, session, "Set the timeout in config to 30 s")
        state_dir, uri = opened.state_dir, f"{opened.folder_uri}/config"
    state = folded(await read_log(state_dir, session))
    # Which file was changed? The conversation alone tells.
    changed = [c.args["path"] for c in state.conversation.calls.values() if c.tool == "write" and c.success]
    assert changed == ["config"]
    # What is in config now? The work context alone tells: by hash, and the object holds the text.
    assert Objects(state_dir).get(state.work_context.files[uri].hash or "") == AFTER.encode()


def _conversation(state: Any) -> list[Any]:
    told = []
    for message in state.conversation.messages.values():
        view = message_view("ses", message).dump()
        parts = [
            ("text", part["text"])
            if part["type"] == "text"
            else ("tool", part["tool"], part["state"]["input"], part["state"]["status"])
            for part in view["parts"]
        ]
        told.append((view["role"], parts))
    return told
