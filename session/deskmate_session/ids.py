"""Identifiers: a prefix and 24 random characters. They carry identity only; order is `seq`."""

import re
import secrets

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

CLIENT_ID = re.compile(r"^(ses|msg)_[A-Za-z0-9]{4,40}$")
"""What an id that a client makes must look like."""


class RandomIds:
    """The real `Ids` port: 24 characters of a 62-letter alphabet, about 143 bits."""

    def new(self, prefix: str) -> str:
        """Return a fresh id such as `msg_4kX…`; `prefix` comes without the underscore."""
        return f"{prefix}_{''.join(secrets.choice(_ALPHABET) for _ in range(24))}"
