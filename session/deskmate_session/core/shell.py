"""What a shell command looks like to a permission rule.

Only a plain command, words and quotes, can be allowed by a rule; anything with chains, pipes,
substitutions, redirects or variables is asked. For denials every piece is looked at.
"""

import re
import shlex

_SPECIAL = re.compile(r"[;&|<>()$`\n\\{}*?\[\]~#!]")
_PIECES = re.compile(r"\|\||&&|[;|&\n()`]|\$\(|<\(|>\(")


def plain_words(command: str) -> str | None:
    """The words joined by one space, or None where the shell would do more than run one command."""
    if _SPECIAL.search(_unquoted(command)):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or "=" in words[0]:
        return None
    return " ".join(words)


def pieces(command: str) -> list[str]:
    """Every part of a command that may be a command itself, words joined by one space. Errs on more."""
    found = [" ".join(piece.replace('"', " ").replace("'", " ").split()) for piece in _PIECES.split(command)]
    whole = " ".join(command.split())
    return [piece for piece in {whole: None, **dict.fromkeys(found)} if piece]


def _unquoted(command: str) -> str:
    """The command without what stands in single quotes; double quotes still expand `$` and backticks."""
    return re.sub(r"'[^']*'", "''", command)
