"""`glob`: files by name."""

from pydantic import Field

from deskmate_session.model.base import Wire
from deskmate_session.model.ports import Effect, Prepared, ToolContext, ToolResult
from deskmate_session.tools.searching import list_files, named
from deskmate_session.tools.support import Ready, find_target, narrow, prompt, read_requests, still
from deskmate_session.workspace import paths
from deskmate_session.workspace.globs import compile_glob, split_base


class GlobArgs(Wire):
    """Which names, where."""

    pattern: str = Field(min_length=1, description="Glob pattern, such as `**/*.py`.")
    path: str | None = Field(default=None, description="Folder to look in; the session's folder without it.")


class GlobTool:
    """Finds files by name."""

    name = "glob"
    description = prompt("glob")
    effect: Effect = "none"
    args = GlobArgs

    def summary(self, args: Wire) -> str:
        """Pattern and folder."""
        wanted = narrow(args, GlobArgs)
        return f"{wanted.pattern} in {wanted.path}" if wanted.path else wanted.pattern

    async def prepare(self, args: Wire, context: ToolContext) -> Prepared:
        """Resolve the folder; read the pattern."""
        wanted = narrow(args, GlobArgs)
        base, pattern = wanted.path or ".", wanted.pattern
        if pattern.startswith(("/", "../")):
            # The fixed folders of such a pattern are where to look; permission is asked for them.
            where, pattern = split_base(pattern)
            base = where if where.startswith("/") else f"{base}/{where}"
        compiled = compile_glob(pattern)
        target = await find_target(base, context)

        def keep(name: str) -> bool:
            shown = paths.shown(f"{target.path}/{name}", context.folder)
            return compiled.fullmatch(name) is not None and context.may_read(shown) != "deny"

        async def run() -> ToolResult:
            await still(target, context)
            limits = context.limits
            listing = await list_files(target, context, keep, limits.output_max_lines)
            lines: list[str] = []
            size = 0
            notes = list(listing.notes)
            for file in listing.files:
                name = named(listing, file, context)
                size += len(name.encode()) + 1
                if size > limits.output_max_bytes:
                    notes.append(f"{len(listing.files) - len(lines):,} more files: narrow the pattern")
                    break
                lines.append(name)
            if not lines:
                notes.insert(0, "no file matches")
            output = "\n".join([*lines, *(f"[{note}]" for note in notes)])
            title = f"{len(lines)} file{'' if len(lines) == 1 else 's'}"
            return ToolResult(output, title, truncated=len(lines) < len(listing.files))

        return Ready(read_requests(target, self.name, f"Look for {wanted.pattern} in {target.name}"), run)
