"""What both dialects share on the way out: each message is encoded once, a body is their join.

So a step costs what is new in it; only the join grows with the history (a memcpy). It also makes the
provider's prompt cache hit: the bytes of a message never change once they were sent.
"""

import json
from collections import OrderedDict
from collections.abc import Callable

from deskmate_session.model.ports import ModelMessage, ModelRequest
from deskmate_session.providers.blocks import well_formed

_CONVERSATIONS = 16
"""Conversations whose messages stay encoded; sub-sessions of one provider take turns."""


def to_json(value: object) -> bytes:
    """Encode compactly as UTF-8; lone surrogates (from old logs or tools) become U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return well_formed(text).encode()


class FragmentCache:
    """Encoded messages by identity, for the last request of each of the latest conversations.

    A conversation is known by its model and first message. An entry keeps its message alive, so an
    identity can't be taken by another message; it goes when the conversation's next request lacks it.
    """

    def __init__(self, encode: Callable[[ModelMessage, str], bytes]) -> None:
        self._encode = encode
        self._kept: OrderedDict[tuple[str, int], dict[int, tuple[ModelMessage, bytes]]] = OrderedDict()

    def body(self, head: bytes, request: ModelRequest) -> bytes:
        """Return `head` (all of the body up to the first message, with its `[`), the messages and `]}`.

        Empty messages are left out. One join: each copy of a long history costs milliseconds.
        """
        pieces: list[bytes] = [head]
        between = b"" if head.endswith(b"[") else b","
        for fragment in self._fragments(request):
            if fragment:
                pieces += (between, fragment)
                between = b","
        pieces.append(b"]}")
        return b"".join(pieces)

    def _fragments(self, request: ModelRequest) -> list[bytes]:
        if not request.messages:
            return []
        key = (request.model, id(request.messages[0]))
        before = self._kept.pop(key, {})
        now: dict[int, tuple[ModelMessage, bytes]] = {}
        parts: list[bytes] = []
        for message in request.messages:
            entry = before.get(id(message)) or (message, self._encode(message, request.model))
            now[id(message)] = entry
            parts.append(entry[1])
        self._kept[key] = now
        if len(self._kept) > _CONVERSATIONS:
            self._kept.popitem(last=False)
        return parts
