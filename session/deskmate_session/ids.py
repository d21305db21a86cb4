"""Identifiers: a prefix and 24 random characters. They carry identity only; order is `seq`."""

import secrets

_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTERS = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in range(256))
"""A letter for each byte. Eight letters come a little more often; an id needs no more than to be fresh."""


class RandomIds:
    """The real `Ids` port: 24 characters of a 62-letter alphabet, more than 140 bits."""

    def new(self, prefix: str) -> str:
        """Return a fresh id such as `msg_4kX…`; `prefix` comes without the underscore."""
        return f"{prefix}_{secrets.token_bytes(24).translate(_LETTERS).decode()}"
