"""Arguments to commands. Each command's module is imported only when it runs."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from deskmate_server.wire.version import VERSION

INTERRUPTED = 130


def run(argv: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 0 done, 1 failed, 2 bad usage, 130 interrupted."""
    from deskmate_server.cli import output

    try:
        return output.settled(_run_it(argv))
    except SystemExit as ended:  # argparse has said what there is to say
        raise SystemExit(output.settled(ended.code if isinstance(ended.code, int) else 1)) from None


def _run_it(argv: Sequence[str]) -> int:
    top = parser()
    if not argv:
        top.print_help(sys.stderr)
        return 2
    args, left = top.parse_known_args(argv)
    if left:
        args.parser.error(f"unrecognized arguments: {' '.join(left)}")
    try:
        return _command(args)
    except KeyboardInterrupt:
        return INTERRUPTED


def _command(args: argparse.Namespace) -> int:
    match args.command:
        case "lsp":
            from deskmate_server.cli import lsp

            return lsp.run()
        case "demo":
            from deskmate_server.cli import demo

            return demo.run()
        case "run":
            from deskmate_server.cli import run as run_command

            return run_command.run(args)
        case "doctor":
            from deskmate_server.cli import doctor

            return doctor.run()
        case _:
            from deskmate_server.cli import sessions

            return sessions.run(args)


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = argparse.ArgumentParser(
        prog="deskmate",
        description="A coding agent that lives in the editor's language server.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted.",
    )
    top.add_argument("--version", action="version", version=f"deskmate {VERSION}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, help: str, **about: Any) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help, **about)
        command.set_defaults(parser=command)  # it tells its own usage where an option is wrong
        return command

    lsp = add("lsp", help="the language server on stdio; editors start this")
    lsp.add_argument("--stdio", action="store_true", help="accepted for editors that pass it; the default")
    add(
        "demo",
        help="a whole session with a built-in scripted model: no key, no network",
        description="Start the real server, let a scripted model mend a small project's test, and show it "
        "all: text, calls, asks, the edit, the tests, the log. On a terminal you answer the asks.",
    )
    _run(add("run", help="one turn in this folder, without an editor", epilog=_RUN_EPILOG))
    add(
        "doctor",
        help="what is configured, what is missing and how to mend it",
        description="Look at this machine, the configuration and this folder's log. Exit code 1 when "
        "something that is needed is missing.",
    )
    _sessions(add("sessions", help="the sessions of this folder and their logs; alone: list"))
    return top


_RUN_EPILOG = (
    "Without --allow or a mode that allows it, everything that would ask is rejected, and the turn ends. "
    "Exit code 0: the turn ended by itself."
)


def _run(run: argparse.ArgumentParser) -> None:
    run.description = "Run one turn in this folder. The answer goes to stdout, calls and troubles to stderr."
    run.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        help="what to do; - reads it from stdin; with --continue or --session, none resumes what was cut off",
    )
    run.add_argument("--json", action="store_true", help="print every update as a line of JSON")
    run.add_argument("--ephemeral", action="store_true", help="keep nothing: the log is deleted afterwards")
    run.add_argument(
        "--allow",
        metavar="NAME[=PATTERN]",
        action="append",
        default=[],
        type=allowed,
        help="allow a permission in this run: edit, bash, 'bash=git status*', 'edit=docs/**'; repeatable",
    )
    run.add_argument(
        "--mode", choices=("ask", "acceptEdits", "plan", "auto"), help="who decides what the rules leave open"
    )
    run.add_argument("--model", metavar="PROVIDER/MODEL", type=_model, help="the model for this turn")
    run.add_argument("--agent", metavar="NAME", help="the agent for this turn")
    which = run.add_mutually_exclusive_group()
    which.add_argument(
        "--continue", dest="go_on", action="store_true", help="go on with this folder's newest session"
    )
    which.add_argument("--session", metavar="ID", help="go on with this session")


def _sessions(sessions: argparse.ArgumentParser) -> None:
    sessions.set_defaults(all=False)
    does = sessions.add_subparsers(dest="does", metavar="WHAT")
    does.default = "list"
    listed = does.add_parser("list", help="the sessions of this folder, newest activity first")
    listed.add_argument("--all", action="store_true", help="those of every folder that has a log")
    show = does.add_parser("show", help="a session's log as a story: what happened, and what led to it")
    show.add_argument("id", metavar="ID", nargs="?", help="the session; the newest one without it")
    show.add_argument("--json", action="store_true", help="the events themselves, one a line")
    verify = does.add_parser(
        "verify", help="check the log: hashes, gaps, objects, and all that is made of it"
    )
    verify.add_argument("id", metavar="ID", nargs="?", help="one session; the whole log without it")
    verify.add_argument("--all", action="store_true", help="the log of every folder")
    verify.epilog = "Exit code 1 when anything is wrong, so it is fit for cron."
    export = does.add_parser("export", help="a session as text, to keep, to read or to take in elsewhere")
    export.add_argument("id", metavar="ID", nargs="?", help="the session; the newest one without it")
    export.add_argument(
        "--format", choices=("jsonl", "markdown"), default="jsonl", help="JSON lines (default), or for people"
    )
    export.add_argument("-o", "--output", metavar="FILE", help="where to; stdout without it")
    export.add_argument(
        "--redact",
        metavar="TEXT",
        action="append",
        default=[],
        help="leave out every event that holds this text, its place in the chain excepted; repeatable",
    )
    taken = does.add_parser("import", help="take in an exported session, under a new id")
    taken.add_argument("file", metavar="FILE", help="JSON lines; - reads stdin")
    for command in (listed, show, verify, export, taken):
        command.set_defaults(parser=command)


def allowed(text: str) -> tuple[str, str]:
    """`NAME[=PATTERN]` as a pair. Raises `ArgumentTypeError`."""
    name, equals, pattern = text.partition("=")
    if not name.strip() or (equals and not pattern.strip()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME or NAME=PATTERN, such as edit or 'bash=make *'"
        )
    return name.strip(), pattern.strip() or "*"


def _model(text: str) -> str:
    if not all(text.partition("/")):
        raise argparse.ArgumentTypeError(f"{text!r} is no model: write it as PROVIDER/MODEL")
    return text
