"""Arguments to commands. Each command's module is imported only when it runs."""

import argparse
from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 0 done, 1 failed, 2 bad usage, 130 interrupted."""
    args = parser().parse_args(argv)
    match args.command:
        case "lsp":
            from deskmate_server.cli import lsp

            return lsp.run()
        case _:
            parser().print_help()
            return 2


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = argparse.ArgumentParser(
        prog="deskmate", description="A coding agent that lives in the editor's language server."
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    lsp = commands.add_parser("lsp", help="the language server on stdio; editors start this")
    lsp.add_argument("--stdio", action="store_true", help="accepted for editors that pass it; the default")
    return top
