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
