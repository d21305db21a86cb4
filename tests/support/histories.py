"""What a provider takes as a history."""

from typing import Any


def valid_anthropic(body: Any) -> None:
    """Each call has exactly one result, directly after it; no text is blank."""
    messages = body["messages"]
    for at, message in enumerate(messages):
        blocks = message["content"] if isinstance(message["content"], list) else []
        for block in blocks:
            if block["type"] == "text":
                assert block["text"].strip()
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if used:
            following = messages[at + 1]["content"]
            assert [b["tool_use_id"] for b in following if b["type"] == "tool_result"] == used


def valid_openai(body: Any) -> None:
    """Each message with calls is followed by one `tool` message for each of them, in order, and there is no
    other `tool` message; each message says something."""
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert waiting and message["tool_call_id"] == waiting.pop(0), "a result without its call"
            assert isinstance(message["content"], str)
            continue
        assert not waiting, f"calls without a result: {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        assert len(set(waiting)) == len(waiting)
        assert waiting or message["content"]
    assert not waiting, f"calls without a result: {waiting}"
