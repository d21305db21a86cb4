"""Arguments: what is good usage, what is bad usage, and what each command loads."""

import subprocess
import sys

import pytest

from deskmate_server.cli.demo_editor import apply_edits
from deskmate_server.cli.main import parser, run
from deskmate_server.cli.run import flags_for, without_asks
from deskmate_session.model.messages import Ask


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "Exit codes:"),
        ("frobnicate", "invalid choice"),
        ("run", "there is no prompt"),
        ("run hi --mode loud", "invalid choice: 'loud'"),
        ("run hi --allow =x", "NAME or NAME=PATTERN"),
        ("run hi --allow edit=", "NAME or NAME=PATTERN"),
        ("run hi --model sonnet", "write it as PROVIDER/MODEL"),
        ("run hi --continue --session ses_1", "not allowed with"),
        ("run hi --ephemeral --continue", "keeps nothing"),
        ("run   --ephemeral --session ses_1 hi", "keeps nothing"),
        ("sessions show --all", "usage: deskmate sessions show"),
        ("run hi --fast", "usage: deskmate run"),
        ("demo fast", "unrecognized arguments"),
    ],
)
def test_bad_usage_ends_with_2_and_says_why(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = run(line.split())
    except SystemExit as ended:
        code = ended.code
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert said in printed.err


def test_a_blank_prompt_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "  \n"]) == 2
    assert "the prompt is empty" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["--help", "run --help", "demo --help", "sessions show --help", "--version"])
def test_help_is_done(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(line.split())
    assert ended.value.code == 0
    assert "deskmate" in capsys.readouterr().out


def test_allow_takes_a_name_and_perhaps_a_pattern() -> None:
    args = parser().parse_args(["run", "hi", "--allow", "edit", "--allow", "bash=git log --format=%H*"])
    assert args.allow == [("edit", "*"), ("bash", "git log --format=%H*")]


def test_a_flag_stands_above_an_equal_ask_and_below_a_deny() -> None:
    table = {"edit": "ask", "bash": {"*": "ask", "rm *": "deny", "make *": "ask"}, "read": "allow"}
    assert without_asks(table, [("edit", "*"), ("bash", "*"), ("bash", "rm *")]) == {
        "edit": {},
        "bash": {"rm *": "deny", "make *": "ask"},
        "read": {"*": "allow"},
    }


def test_a_rejected_ask_names_the_flags_that_would_allow_it() -> None:
    ask = {"id": "ask_1", "kind": "permission", "title": "Run", "createdAt": 0}
    detail = {"command": "make test", "workdir": "/"}
    plain = {**ask, "permission": "bash", "patterns": ["make test"], "detail": detail}
    given = Ask.parse({**plain, "always": [{"pattern": "make test*"}]})
    assert flags_for(given) == ["--allow 'bash=make test*'", "--allow bash"]
    # No rule allows a chain by its words, so only the whole name does.
    chain = Ask.parse({**plain, "patterns": ["make test && rm x"], "always": []})
    assert flags_for(chain) == ["--allow bash"]


def test_the_version_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom deskmate_server.cli.main import run\n"
        "try: run(['--version'])\nexcept SystemExit: pass\n"
        "print(sorted({'asyncio', 'pygls', 'pydantic', 'httpx', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"


def edit(line: int, start: int, end_line: int, end: int, text: str) -> dict[str, object]:
    """An LSP text edit."""
    places = {"start": {"line": line, "character": start}, "end": {"line": end_line, "character": end}}
    return {"range": places, "newText": text}


def test_the_demos_editor_applies_edits_to_the_text_before_all_of_them() -> None:
    edits = [edit(0, 0, 0, 1, "A"), edit(1, 1, 1, 1, "!"), edit(2, 0, 9, 9, "")]
    assert apply_edits("a𝒳\nb\nc", edits) == "A𝒳\nb!\n"
