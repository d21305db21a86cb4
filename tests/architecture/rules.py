"""Rules that each module is held to: a function from a module to its faults, and a sample that breaks it."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.architecture.source import Source

Check = Callable[[Source], Iterator[str]]

PRINTS = {
    "server/deskmate_server/cli/output.py": "the CLI's one door to stdout; never imported by `deskmate lsp`",
}
"""Modules that may print, and why."""

MAKES_TASKS = {
    "server/deskmate_server/wire/transport.py": "the edge of the process: outlives every supervisor",
}
"""Modules besides a `supervisor` that may make a task, and why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`sample` breaks the rule as (path, text): a rule that can't fail holds nothing."""

    name: str
    check: Check
    sample: tuple[str, str]


def _at(source: Source, node: ast.stmt | ast.expr, words: str) -> str:
    return f"{source.path}:{node.lineno}: {words}"


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str, str]]:
    """(call, receiver, name) for `receiver.name(…)` and `name(…)`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name)):
                yield node, ast.unparse(value), name
            case ast.Call(func=ast.Name(id=name)):
                yield node, "", name
            case _:
                pass


def no_print(source: Source) -> Iterator[str]:
    """stdout belongs to the protocol."""
    if source.path in PRINTS:
        return
    for call, receiver, name in _calls(source.tree):
        if (receiver, name) == ("", "print") or receiver == "sys.stdout":
            yield _at(
                source, call, "writes to stdout, which is the protocol's: use logging, or cli/output.py"
            )


def tasks_have_parents(source: Source) -> Iterator[str]:
    """A task is born in a supervisor, or in a task group that its own function waits for."""
    if source.path.rpartition("/")[2] == "supervisor.py" or source.path in MAKES_TASKS:
        return
    groups = {
        item.optional_vars.id
        for node in ast.walk(source.tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if "TaskGroup" in ast.unparse(item.context_expr) and isinstance(item.optional_vars, ast.Name)
    }
    for call, receiver, name in _calls(source.tree):
        if name in ("create_task", "ensure_future", "run_coroutine_threadsafe") and receiver not in groups:
            yield _at(source, call, f"makes a task with {name!r}: take a `spawn` from whoever supervises it")


def no_ambient_loop(source: Source) -> Iterator[str]:
    """The loop is the running one."""
    for call, _, name in _calls(source.tree):
        if name in ("get_event_loop", "new_event_loop", "set_event_loop"):
            yield _at(source, call, f"{name!r} finds or makes a loop: use `asyncio.get_running_loop()`")


def pure_is_synchronous(source: Source) -> Iterator[str]:
    """Nothing in core or model waits; a Protocol may say that others do."""
    if not source.path.startswith(("session/deskmate_session/core/", "session/deskmate_session/model/")):
        return
    stubs = {
        function
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)
        for function in node.body
        if isinstance(function, ast.AsyncFunctionDef) and _is_stub(function)
    }
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    for node in ast.walk(source.tree):
        if isinstance(node, waiting) and node not in stubs:
            yield _at(source, node, "waits: core and model are pure, move it to the runtime or an adapter")
        elif isinstance(node, ast.comprehension) and node.is_async:
            yield _at(source, node.iter, "waits: core and model are pure")


def _is_stub(function: ast.AsyncFunctionDef) -> bool:
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in function.body)


def init_is_a_paragraph(source: Source) -> Iterator[str]:
    """A package says what it is and what it leaves out; code stands in modules."""
    if source.path.rpartition("/")[2] != "__init__.py":
        return
    words = ast.get_docstring(source.tree)
    if not words:
        yield f"{source.path}: says nothing: write what the package is, and what is deliberately absent"
    elif len(source.tree.body) > 1:
        yield _at(source, source.tree.body[1], "is code in an __init__: put it in a module")
    elif len(source.text.splitlines()) > 10 or words.count("\n\n") > 1:
        yield f"{source.path}: is longer than a sentence and a paragraph (10 lines)"


def heavy_imports_wait(source: Source) -> Iterator[str]:
    """`anthropic` and `mcp` are slow to import: they are loaded where they are used first."""
    for node in source.tree.body:
        for name in _imported(node):
            if name.partition(".")[0] in ("anthropic", "mcp"):
                yield _at(source, node, f"imports {name!r} with the module: import it where it is first used")


def _imported(node: ast.stmt) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(name), level=0):
            return [name]
        case _:
            return []


def one_name_for_a_package(source: Source) -> Iterator[str]:
    """From the root, `session.deskmate_session` is a second package with the same code."""
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if any(name.partition(".")[0] in ("session", "server") for name in _imported(node)):
            yield _at(source, node, "imports by the folder's name: use deskmate_session or deskmate_server")


CORE = "session/deskmate_session/core/x.py"
RUN = "session/deskmate_session/runtime/x.py"
RULES = (
    Rule("no print", no_print, (RUN, "print('x')")),
    Rule("no writing to stdout", no_print, (RUN, "import sys\nsys.stdout.write('x')")),
    Rule("tasks have parents", tasks_have_parents, (RUN, "import asyncio\nasyncio.create_task(f())")),
    Rule(
        "futures have parents",
        tasks_have_parents,
        (RUN, "from asyncio import ensure_future as e\nensure_future(f())"),
    ),
    Rule("no task of the loop", tasks_have_parents, (RUN, "loop.create_task(f())")),
    Rule("no ambient loop", no_ambient_loop, (RUN, "import asyncio\nasyncio.get_event_loop()")),
    Rule("core is synchronous", pure_is_synchronous, (CORE, "async def f():\n    return 1")),
    Rule(
        "a port in model has no body",
        pure_is_synchronous,
        (
            "session/deskmate_session/model/x.py",
            "class P(Protocol):\n    async def f(self): return await g()",
        ),
    ),
    Rule("a package says what it is", init_is_a_paragraph, ("server/deskmate_server/x/__init__.py", "")),
    Rule(
        "no code in a package's init",
        init_is_a_paragraph,
        ("server/deskmate_server/x/__init__.py", '"""It."""\nimport os'),
    ),
    Rule(
        "an init is short",
        init_is_a_paragraph,
        ("server/deskmate_server/x/__init__.py", '"""It.\n' + "\nline" * 12 + '\n"""'),
    ),
    Rule("heavy imports wait", heavy_imports_wait, (RUN, "from anthropic import AsyncAnthropic")),
    Rule("one name for a package", one_name_for_a_package, (RUN, "from session.deskmate_session import ids")),
)
