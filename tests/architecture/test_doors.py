"""Every door goes through the coordinator: nobody else starts a turn, takes a lease or wakes a run, and what
the front door does to a session ends there.

A rule reads syntax, so it knows a thing by the name it stands under here: the log is `log`, the loop `loop`,
live sessions `sessions`. `test_the_rules_know_what_they_forbid_where_it_is_done` fails when those change.
"""

import ast
from collections.abc import Iterator, Mapping

import pytest

from tests.architecture.rules import Check, Rule
from tests.architecture.source import Source, our_modules

RUNTIME = "session/deskmate_session/runtime"
COORDINATOR = f"{RUNTIME}/coordinator.py"
KERNEL = "session/deskmate_session/kernel.py"
LOG = "session/deskmate_session/log/"

LEASES = {"request", "take", "release"}
"""What takes and gives back leases, on an event log."""
REQUEST_LOGGERS = {
    f"{RUNTIME}/sessions.py": "the one way of facts into the log; it adds the lease and the causes",
    f"{RUNTIME}/asks.py": "an answer starts nothing: the run that waits for it goes on",
}
"""Modules besides the coordinator that may log what the person asks for, and why."""
DOORS = {
    "begin",
    "request",
    "tell",
    "interrupt",
    "join",
    "settle_dead",
    "recover",
    "close",
    "runs",
    "drained",
}


def _at(source: Source, node: ast.stmt | ast.expr, words: str) -> str:
    return f"{source.path}:{node.lineno}: {words}"


def _method_calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str, str]]:
    """(call, the receiver's last name without its underscore, method)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, _last(node.func.value), node.func.attr


def _last(value: ast.expr) -> str:
    match value:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.lstrip("_")
        case _:
            return ""


def only_the_coordinator_takes_leases(source: Source) -> Iterator[str]:
    """A lease comes with a request and goes when nothing waits; another taker would run beside the run."""
    if source.path == COORDINATOR or source.path.startswith(LOG):
        return
    for call, receiver, name in _method_calls(source.tree):
        if name in LEASES and receiver in ("log", "event_log"):
            yield _at(source, call, f"calls {name!r} of the log: go through the coordinator's `request`")


def only_the_coordinator_starts_turns(source: Source) -> Iterator[str]:
    """One run a session: a second starter would give it two."""
    if source.path == COORDINATOR:
        return
    for call, receiver, name in _method_calls(source.tree):
        if receiver == "loop" and name == "turn":
            yield _at(source, call, "starts a turn: `request` or `join` of the coordinator does")
        if receiver == "recovery" and name == "settle":
            yield _at(source, call, "settles a session: only a run may, under its lease")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and _called(node) == "TurnControl":
            yield _at(source, node, "makes a turn's control: turns are begun by the coordinator")
        if (
            isinstance(node, ast.Call)
            and _called(node) == "TurnStarted"
            and source.path != f"{RUNTIME}/loop.py"
        ):
            yield _at(source, node, "says that a turn started: the loop does, when the coordinator begins it")


def only_the_coordinator_writes_leases(source: Source) -> Iterator[str]:
    """`sessions.leases` says what this process may log; others read it."""
    if source.path == COORDINATOR or source.path.startswith(LOG):
        return
    for node in ast.walk(source.tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                written = targets
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                written = [target]
            case _:
                continue
        for target in written:
            if _is_leases(target) and not _is_declared_empty(source, node):
                yield _at(source, node, "writes `leases`: the coordinator alone does")
    for call, receiver, name in _method_calls(source.tree):
        if receiver == "leases" and name in {
            "pop",
            "popitem",
            "clear",
            "update",
            "setdefault",
            "__setitem__",
        }:
            yield _at(source, call, "writes `leases`: the coordinator alone does")


def _is_leases(target: ast.expr) -> bool:
    if isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and target.attr == "leases"


def _is_declared_empty(source: Source, node: ast.stmt | ast.expr) -> bool:
    """`self.leases: dict[…] = {}` in `Sessions`, which keeps it for the coordinator."""
    return (
        source.path == f"{RUNTIME}/sessions.py"
        and isinstance(node, ast.AnnAssign)
        and isinstance(node.value, ast.Dict)
        and not node.value.keys
    )


def only_the_coordinator_spawns_runs(source: Source) -> Iterator[str]:
    """A task that is named a run, or that runs a session, is the coordinator's."""
    if source.path == COORDINATOR:
        return
    for call, _, name in _method_calls(source.tree):
        if name != "spawn":
            continue
        work = call.args[0] if call.args else None
        begun = _called(work) if isinstance(work, ast.Call) else ""
        receiver = (
            _last(work.func.value)
            if isinstance(work, ast.Call) and isinstance(work.func, ast.Attribute)
            else ""
        )
        if begun in {"turn", "settle"} or receiver in {"coordinator", "recovery", "loop"}:
            yield _at(source, call, f"spawns {receiver}.{begun}: the coordinator spawns runs")


def requests_are_logged_by_the_coordinator(source: Source) -> Iterator[str]:
    """What the person asks for is logged where it is seen to: a prompt that is only logged is never run."""
    if source.path == COORDINATOR or source.path in REQUEST_LOGGERS or source.path.startswith(LOG):
        return
    for call, receiver, name in _method_calls(source.tree):
        if name != "append" or receiver not in ("log", "event_log", "sessions"):
            continue
        for made in ast.walk(call):
            if isinstance(made, ast.Call) and (fact := _called(made)) in REQUESTS:
                if source.path == f"{RUNTIME}/loop.py" and fact == "InterruptRequested":
                    continue  # of its own turn, under its lease
                yield _at(source, call, f"logs {fact} past the coordinator: use its `request` or `tell`")


REQUESTS = {
    "SessionCreated",
    "SessionUpdated",
    "SessionDeleted",
    "MessageReceived",
    "MessageUnqueued",
    "InterruptRequested",
    "QueueReleased",
}


def the_kernel_has_no_other_door(source: Source) -> Iterator[str]:
    """The front door and prompts reach the log for reading only."""
    if source.path not in (KERNEL, f"{RUNTIME}/prompts.py"):
        return
    for call, receiver, name in _method_calls(source.tree):
        if receiver in ("log", "sessions") and name in {
            "append",
            "request",
            "take",
            "release",
            "fail_waiters",
        }:
            yield _at(source, call, f"changes a session by {receiver}.{name}: use a door of the coordinator")


def _called(call: ast.expr | None) -> str:
    match call:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
        case _:
            return ""


X = f"{RUNTIME}/x.py"
RULES = (
    Rule("no lease with a request", only_the_coordinator_takes_leases, (X, "self._log.request(s, facts)")),
    Rule(
        "no lease is taken", only_the_coordinator_takes_leases, (X, "async def f(log): await log.take('s')")
    ),
    Rule("no lease is given back", only_the_coordinator_takes_leases, (X, "kernel._log.release(lease)")),
    Rule("no turn", only_the_coordinator_starts_turns, (X, "self._loop.turn(state, 'm', control)")),
    Rule("no turn by hand", only_the_coordinator_starts_turns, (X, "e.TurnStarted(turn_id='t')")),
    Rule("no control", only_the_coordinator_starts_turns, (X, "control = TurnControl('turn_1')")),
    Rule("no settling", only_the_coordinator_starts_turns, (X, "self._recovery.settle(state, crashed=True)")),
    Rule("no lease by hand", only_the_coordinator_writes_leases, (X, "self._sessions.leases['s'] = lease")),
    Rule("no lease away", only_the_coordinator_writes_leases, (X, "del sessions.leases['s']")),
    Rule("no other leases", only_the_coordinator_writes_leases, (X, "self.leases = {}")),
    Rule("no leases cleared", only_the_coordinator_writes_leases, (X, "self._sessions.leases.clear()")),
    Rule(
        "sessions write none either",
        only_the_coordinator_writes_leases,
        (f"{RUNTIME}/sessions.py", "self.leases['s'] = lease"),
    ),
    Rule(
        "no run beside", only_the_coordinator_spawns_runs, (X, "self._supervisor.spawn(loop.turn(s, m, c))")
    ),
    Rule(
        "no run of the coordinator's",
        only_the_coordinator_spawns_runs,
        (X, "self._supervisor.spawn(self._coordinator._run(s, r), name='run')"),
    ),
    Rule(
        "no prompt that is only logged",
        requests_are_logged_by_the_coordinator,
        (X, "self._sessions.append(s, e.MessageReceived(message_id='m'))"),
    ),
    Rule(
        "no interrupt in a draft",
        requests_are_logged_by_the_coordinator,
        (X, "log.append(s, [e.Draft(e.InterruptRequested(turn_id='t'))])"),
    ),
    Rule(
        "the loop logs no prompt",
        requests_are_logged_by_the_coordinator,
        (f"{RUNTIME}/loop.py", "self.sessions.append(s, e.MessageReceived(message_id='m'))"),
    ),
    Rule("no second door", the_kernel_has_no_other_door, (KERNEL, "self._sessions.append(s, fact)")),
    Rule(
        "prompts log nothing themselves",
        the_kernel_has_no_other_door,
        (f"{RUNTIME}/prompts.py", "self._log.append(s, drafts)"),
    ),
)


@pytest.mark.parametrize(
    "check", dict.fromkeys(rule.check for rule in RULES), ids=lambda check: check.__name__
)
def test_every_module_keeps_the_rule(check: Check) -> None:
    faults = [fault for source in our_modules() for fault in check(source)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_rule_catches_what_breaks_it(rule: Rule) -> None:
    assert list(rule.check(Source.parse(*rule.sample)))


def test_the_rules_know_what_they_forbid_where_it_is_done() -> None:
    """Under another path the coordinator breaks them, so the names that they look for are those in use."""
    moved = Source.parse(X, _module(COORDINATOR).text)
    assert list(only_the_coordinator_takes_leases(moved))
    assert list(only_the_coordinator_starts_turns(moved))
    assert list(only_the_coordinator_writes_leases(moved))


def test_requests_are_those_of_the_model() -> None:
    from deskmate_session.model.events import REQUESTS as known

    assert REQUESTS | {"AskReplied"} == {fact.__name__ for fact in known}


def _module(path: str) -> Source:
    return next(source for source in our_modules() if source.path == path)


# ── What changes a session ends in a door ────────────────────────────────────────────────────


def _functions(source: Source) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {
        node.name: node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _reaches(name: str, functions: Mapping[str, ast.AST], seen: frozenset[str] = frozenset()) -> set[str]:
    """The coordinator's doors that a method comes to, itself or by others of the kernel and of prompts."""
    if name in seen or name not in functions:
        return set()
    doors: set[str] = set()
    for _, receiver, called in _method_calls(functions[name]):
        if receiver == "coordinator":
            doors.add(called)
        elif receiver in ("self", "prompts"):
            doors |= _reaches(called if receiver == "self" else f"prompts.{called}", functions, seen | {name})
    return doors


def _doors_of(kernel: Source, prompts: Source) -> dict[str, set[str]]:
    """Method → the doors it comes to; those of prompts as `prompts.NAME`."""
    inner = _functions(prompts)
    functions: dict[str, ast.AST] = {**_functions(kernel)}
    for name, function in inner.items():
        functions[f"prompts.{name}"] = _qualified(function, set(inner))
    return {name: _reaches(name, functions) for name in functions}


def _qualified(function: ast.AST, inner: set[str]) -> ast.AST:
    """A method of prompts whose calls of `self` are calls of `prompts`."""
    tree = ast.parse(ast.unparse(function))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self") as receiver, attr=name)):
                if name in inner:
                    receiver.id = "prompts"
            case _:
                pass
    return tree


COMMANDS = {
    "_create": {"tell"},
    "_update": {"tell"},
    "_delete": {"interrupt", "tell"},
    "_fork": {"begin"},
    "_import": {"begin"},
    "prompt": {"interrupt", "request", "join"},
    "resume": {"settle_dead", "request", "join"},
    "unqueue": {"tell"},
    "open": {"recover"},
    "close": {"close"},
}
"""Methods of the kernel → the doors that each comes to."""


def test_what_changes_a_session_comes_to_a_door() -> None:
    doors = _doors_of(_module(KERNEL), _module(f"{RUNTIME}/prompts.py"))
    assert {name: doors[name] for name in COMMANDS} == COMMANDS
    assert doors["submit"] == {"tell", "interrupt", "begin"}


def test_every_command_is_one_that_is_known_here() -> None:
    """A new command has to be placed above."""
    [submit] = [node for name, node in _functions(_module(KERNEL)).items() if name == "submit"]
    handled = {
        case.pattern.cls.attr
        for node in ast.walk(submit)
        if isinstance(node, ast.Match)
        for case in node.cases
        if isinstance(case.pattern, ast.MatchClass) and isinstance(case.pattern.cls, ast.Attribute)
    }
    assert handled == {
        "CreateSession",
        "UpdateSession",
        "DeleteSession",
        "ForkSession",
        "ImportSession",
        "Interrupt",
        "Unqueue",
        "ReplyAsk",  # answered by `Asks`: see REQUEST_LOGGERS
    }


def test_a_method_that_misses_its_door_is_seen() -> None:
    kernel = Source.parse(
        KERNEL,
        "class Kernel:\n"
        "    async def prompt(self, c): return await self._prompts.prompt(c)\n"
        "    async def update(self, c): return await self._told(c)\n"
        "    async def _told(self, c): await self._coordinator.tell(c)\n"
        "    async def shell(self, c): await self._loop.go(c)\n",
    )
    prompts = Source.parse(
        f"{RUNTIME}/prompts.py",
        "class Prompts:\n"
        "    async def prompt(self, c): return await self._begin(c)\n"
        "    async def _begin(self, c): await self._coordinator.request(c)\n",
    )
    doors = _doors_of(kernel, prompts)
    assert [doors["prompt"], doors["update"], doors["shell"]] == [{"request"}, {"tell"}, set()]


def test_only_public_doors_are_used() -> None:
    used = {
        name
        for source in our_modules()
        if source.path != COORDINATOR
        for _, receiver, name in _method_calls(source.tree)
        if receiver == "coordinator"
    }
    assert used == DOORS


def test_exceptions_have_reasons_and_are_needed() -> None:
    for path, reason in REQUEST_LOGGERS.items():
        assert len(reason) > 20
        appends = [name for _, _, name in _method_calls(_module(path).tree) if name == "append"]
        assert appends, f"{path} logs nothing any more"
