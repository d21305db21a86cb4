"""The script language of the scripted provider. `docs/scripts.md` shows it at length.

    // The model reads, changes and answers.
    pace: 20ms

    # turn
    when: timeout
    ## answer
    think: I should look first.
    say: Let me read the file.
    call read {"path": "config.py"}
    ## answer
    call write {"path": "config.py",
      "content": "timeout = 30\\n"}
    ## answer
    say: The timeout is 30 s now.

- `# turn` begins a turn, `## answer` the next answer in it; the first of each may be left out.
- `when: TEXT` (before a turn's first answer): the turn is for prompts that hold TEXT, in any case.
- `say:` and `think:` are text and reasoning; `call NAME {JSON}` calls a tool, without JSON with `{}`;
  `wait 200ms` or `wait 2s` pauses; `finish WORD` says how the answer ends (`stop`, `toolCalls`, `length`,
  `refusal`, `unknown`), by default `toolCalls` after calls, else `stop`; `fail KIND: MESSAGE` breaks the
  answer off with a `ProviderError`.
- Lines that are indented continue the one above: for texts as new lines, two spaces less.
- `pace: 20ms` before the first turn: the pause between words (default 0). `//` begins a comment line.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from deskmate_session.errors import ConfigError, ProviderErrorKind
from deskmate_session.model.messages import AnswerFinish


class ScriptError(ConfigError):
    """A script that can't be read; `line` and `column` count from 1."""

    def __init__(self, source: str, line: int, column: int, message: str) -> None:
        super().__init__(f"{source}:{line}:{column}: {message}")
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Say:
    """Text."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause."""

    ms: int


@dataclass(frozen=True, slots=True)
class Fail:
    """The request fails here; `providerUnavailable` and `badResponse` may be retried."""

    kind: ProviderErrorKind
    message: str


Action = Say | Think | Call | Wait | Fail


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One answer of the model."""

    actions: tuple[Action, ...]
    finish: AnswerFinish


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """The answers to one prompt."""

    when: str | None
    answers: tuple[ScriptedAnswer, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script."""

    source: str
    pace_ms: int
    turns: tuple[ScriptedTurn, ...]

    @classmethod
    def parse(cls, text: str, source: str = "script") -> "Script":
        """Read a script; `source` names it in errors. Raises `ScriptError`."""
        return _Parser(source).read(text)

    def dump(self) -> str:
        """Write the script so that `parse` gives it back."""
        lines: list[str] = [f"pace: {self.pace_ms}ms"] if self.pace_ms else []
        for turn in self.turns:
            lines += ["", "# turn"]
            if turn.when is not None:
                lines.append(f"when: {turn.when}")
            for answer in turn.answers:
                lines += ["", "## answer", *(_dump(action) for action in answer.actions)]
                lines.append(f"finish {answer.finish}")
        return "\n".join(lines).lstrip("\n") + "\n"


_WORDS = re.compile(r"(#\s*turn|##\s*answer|when:|pace:|say:|think:|call|wait|finish|fail)(?=\s|$)")
_DURATION = re.compile(r"(\d+)\s*(ms|s)$")
_TOOL = re.compile(r"[A-Za-z0-9_.-]+")
_FAIL = re.compile(r"(\w+)(?::\s*(.*))?$", re.DOTALL)


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._pace = 0
        self._turns: list[ScriptedTurn] = []
        self._when: str | None = None
        self._answers: list[ScriptedAnswer] | None = None
        self._actions: list[Action] | None = None
        self._finish: AnswerFinish | None = None

    def read(self, text: str) -> Script:
        for number, line in _statements(text):
            self._statement(number, line)
        self._end_turn()
        return Script(self._source, self._pace, tuple(self._turns))

    def _statement(self, number: int, statement: str) -> None:
        found = _WORDS.match(statement)
        if found is None:
            if statement[0].isspace():
                raise self._error(number, 1, "an indented line continues a line above it, and there is none")
            words = "'# turn', '## answer', 'when:', 'say:', 'think:', 'call', 'wait', 'finish', 'fail'"
            raise self._error(number, 1, f"expected one of {words}")
        start = found.end()
        while statement[start : start + 1] in (" ", "\t"):
            start += 1
        rest, column = statement[start:], start + 1
        match found[1].replace(" ", ""):
            case "#turn":
                self._end_turn()
                self._answers = []
            case "##answer":
                self._end_answer()
                self._actions = []
            case "when:":
                if self._actions is not None or not rest or "\n" in rest:
                    raise self._error(
                        number, 1, "'when:' takes one line of text, before a turn's first answer"
                    )
                self._answers = [] if self._answers is None else self._answers
                self._when = rest
            case "pace:":
                if self._turns or self._answers is not None or self._actions is not None:
                    raise self._error(number, 1, "'pace:' stands before the first turn")
                self._pace = self._duration(number, column, rest)
            case "finish":
                if rest not in get_args(AnswerFinish):
                    raise self._error(number, column, f"expected one of {', '.join(get_args(AnswerFinish))}")
                self._open()
                self._finish = cast("AnswerFinish", rest)
            case word:
                self._open().append(self._action(word, number, column, rest))

    def _action(self, word: str, number: int, column: int, rest: str) -> Action:
        match word:
            case "say:":
                return Say(rest)
            case "think:":
                return Think(rest)
            case "wait":
                return Wait(self._duration(number, column, rest))
            case "fail":
                found = _FAIL.match(rest)
                if found is None or found[1] not in get_args(ProviderErrorKind):
                    raise self._error(
                        number,
                        column,
                        f"expected KIND: MESSAGE with one of {', '.join(get_args(ProviderErrorKind))}",
                    )
                return Fail(cast("ProviderErrorKind", found[1]), found[2] or "the script says so")
            case _:
                return self._call(number, column, rest)

    def _call(self, number: int, column: int, rest: str) -> Call:
        found = _TOOL.match(rest)
        if found is None:
            raise self._error(number, column, "expected the name of a tool")
        text = rest[found.end() :]
        if not text.strip():
            return Call(found[0], {})
        try:
            args: Any = json.loads(text)
        except json.JSONDecodeError as error:
            at = found.end() + error.pos
            line = rest.count("\n", 0, at)
            # Continuation lines lost two columns of indentation when they were joined.
            place = at - rest.rfind("\n", 0, at) + 2 if line else column + at
            raise self._error(
                number + line, place, f"the arguments are no JSON: {error.msg.lower()}"
            ) from None
        if not isinstance(args, dict):
            raise self._error(number, column + found.end() + 1, "the arguments must be a JSON object")
        return Call(found[0], cast("dict[str, Any]", args))

    def _duration(self, number: int, column: int, text: str) -> int:
        found = _DURATION.match(text)
        if found is None:
            raise self._error(number, column, "expected a time such as 200ms or 2s")
        return int(found[1]) * (1000 if found[2] == "s" else 1)

    def _open(self) -> list[Action]:
        if self._answers is None:
            self._answers = []
        if self._actions is None:
            self._actions = []
        return self._actions

    def _end_answer(self) -> None:
        if self._answers is None:
            self._answers = []
        if self._actions is not None:
            calls = any(isinstance(action, Call) for action in self._actions)
            finish = self._finish or ("toolCalls" if calls else "stop")
            self._answers.append(ScriptedAnswer(tuple(self._actions), finish))
        self._actions = self._finish = None

    def _end_turn(self) -> None:
        if self._answers is not None:
            self._end_answer()
            self._turns.append(ScriptedTurn(self._when, tuple(self._answers)))
        self._answers = self._when = None

    def _error(self, line: int, column: int, message: str) -> ScriptError:
        return ScriptError(self._source, line, column, message)


def _statements(text: str) -> list[tuple[int, str]]:
    """Join continuation lines to the line above; blank lines between them stay. Number from 1."""
    statements: list[tuple[int, str]] = []
    blank = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = raw.rstrip()
        if line.startswith("//"):
            continue
        if not line:
            blank += 1
        elif line[0] in " \t" and statements:
            first, before = statements[-1]
            body = line[2:] if line.startswith("  ") else line[1:]
            statements[-1] = (first, before + "\n" * (blank + 1) + body)
            blank = 0
        else:
            statements.append((number, line))
            blank = 0
    return statements


def _dump(action: Action) -> str:
    match action:
        case Say(text=text) | Think(text=text):
            word: Literal["say", "think"] = "say" if isinstance(action, Say) else "think"
            return f"{word}: " + text.replace("\n", "\n  ")
        case Call(tool=tool, args=args):
            return f"call {tool} {json.dumps(args, ensure_ascii=False)}"
        case Wait(ms=ms):
            return f"wait {ms}ms"
        case Fail(kind=kind, message=message):
            return f"fail {kind}: {message}"
