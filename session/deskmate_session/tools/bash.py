"""`bash`: a shell command, bounded in time and output, that leaves nothing running."""

import asyncio
import re
from pathlib import Path

from pydantic import Field

from deskmate_session.core.shell import plain_words
from deskmate_session.errors import ToolFailure
from deskmate_session.model.base import Wire
from deskmate_session.model.messages import CommandDetail
from deskmate_session.model.permissions import PermissionRequest
from deskmate_session.model.ports import Effect, Prepared, ToolContext, ToolResult
from deskmate_session.tools.support import Ready, Target, find_target, narrow, outside_requests, prompt, still
from deskmate_session.workspace.processes import Command, CommandResult, run_command

_CHANGES_FOLDER = re.compile(r"(?:^|[;&|(\n])\s*(?:cd|pushd|popd)\b")
_SAFE_PREFIX = re.compile(
    r"""ls | cat | head | tail | wc | pwd | tree | du | df | stat | file | which | grep | pytest | ruff | mypy
    | pyright | eslint | tsc | git\ (status|diff|log|show|blame) | cargo\ (check|test|build|clippy|fmt)
    | go\ (build|vet) | npm\ (test|run\ [\w:.-]+) | (pnpm|yarn)\ [a-z][\w:.-]* | make\ [a-z][\w.-]*""",
    re.VERBOSE,
)
"""Beginnings of commands after which more words change what is looked at, not what is done.

Everything else is suggested word for word: many a program runs others by an option.
"""


class BashArgs(Wire):
    """A command and its bounds."""

    command: str = Field(min_length=1, description="The command, as bash reads it.")
    timeout: int | None = Field(default=None, ge=1, description="Limit in milliseconds.")
    workdir: str | None = Field(
        default=None, description="Folder to run in; the session's folder without it."
    )
    description: str | None = Field(default=None, description="What it is for, in a few words.")


class BashTool:
    """Runs shell commands."""

    name = "bash"
    description = prompt("bash")
    effect: Effect = "effect"
    args = BashArgs

    def summary(self, args: Wire) -> str:
        """The command, on one line."""
        return " ".join(narrow(args, BashArgs).command.split())

    async def prepare(self, args: Wire, context: ToolContext) -> Prepared:
        """Resolve the folder; say what will run."""
        wanted = narrow(args, BashArgs)
        command = wanted.command.strip()
        if not command or "\0" in command:
            raise ToolFailure("badArguments", "`command` is empty or holds a NUL character")
        target = await find_target(wanted.workdir or ".", context)
        # The rules' own parser joins the words: doing it here would hide line breaks, which part commands.
        request = PermissionRequest(
            "bash",
            (command,),
            wanted.description or "Run a command",
            CommandDetail(command=wanted.command, workdir=target.path),
            suggested_rules(command),
        )

        async def run() -> ToolResult:
            await still(target, context)
            return await _run(wanted, target, context)

        return Ready((*outside_requests(target, self.name, "Run a command outside the folder"), request), run)


def suggested_rules(command: str) -> tuple[str, ...]:
    """The pattern that *always* would allow; none for what a rule can't judge by its first words."""
    plain = plain_words(command)
    if plain is None or "*" in plain:
        return ()
    found = _SAFE_PREFIX.match(plain)
    if found is not None and plain[found.end() : found.end() + 1] in ("", " "):
        return (f"{found.group()}*",)
    return (plain,)


async def _run(args: BashArgs, target: Target, context: ToolContext) -> ToolResult:
    limits = context.limits
    timeout_ms = min(args.timeout or limits.command_timeout_ms, limits.command_timeout_max_ms)
    result = await run_command(
        Command(
            command=args.command,
            workdir=target.path,
            env=await asyncio.to_thread(context.environment),
            call_id=context.call_id,
            outputs=Path(context.state_dir) / "outputs",
            timeout_s=timeout_ms / 1000,
            max_lines=limits.output_max_lines,
            max_bytes=limits.output_max_bytes,
        ),
        context.progress,
    )
    output = _output(args, target, result, context)
    if result.timed_out:
        note = (
            f"[timed out after {timeout_ms:,} ms; all its processes were ended, what it did until then stays]"
        )
        raise ToolFailure("timeout", f"{output}\n{note}", outcome_unknown=True)
    return ToolResult(
        output,
        args.description or " ".join(args.command.split()),
        success=result.exit_code == 0,
        exit_code=result.exit_code,
        truncated=result.shown.output_file is not None,
        output_file=result.shown.output_file,
        command=args.command,
        metadata={"omittedLines": result.shown.omitted_lines, "totalBytes": result.shown.total_bytes},
    )


def _output(args: BashArgs, target: Target, result: CommandResult, context: ToolContext) -> str:
    lines = [result.shown.text.removesuffix("\n") if result.shown.text.strip() else "[no output]"]
    if result.ended:
        lines.append(f"[ended with the command, for it left them running: {', '.join(result.ended)}]")
    if _CHANGES_FOLDER.search(args.command):
        lines.append(f"[the next command starts in {context.folder} again]")
    elif target.path != context.folder and args.workdir:
        lines.append(f"[ran in {target.path}]")
    if result.exit_code and not result.timed_out:
        lines.append(f"[exit code {result.exit_code}]")
    return "\n".join(lines)
