"""What the rules say: the most specific pattern wins, a deny is final, guarded files are always asked."""

from itertools import permutations

import pytest

from deskmate_session.core.permissions import judge, rules_from
from deskmate_session.core.shell import pieces, plain_words
from deskmate_session.model.messages import Mode, ToolDetail
from deskmate_session.model.permissions import Action, PermissionRequest, Rule


def request(permission: str, *patterns: str) -> PermissionRequest:
    return PermissionRequest(permission, patterns, "title", ToolDetail(tool="t", input={}))


def verdict(
    permission: str, pattern: str, table: dict[str, Action | dict[str, Action]], mode: Mode = "ask"
) -> Action:
    return judge(request(permission, pattern), rules_from(table), (), mode).action


@pytest.mark.parametrize(
    ("permission", "pattern", "action"),
    [
        ("read", "src/a.py", "allow"),
        ("read", ".env", "ask"),
        ("read", "keys/server.pem", "ask"),
        ("read", ".env.example", "allow"),
        ("edit", "src/a.py", "ask"),
        ("bash", "ls", "ask"),
        ("external_directory", "/etc", "ask"),
        ("anything", "else", "ask"),
    ],
)
def test_the_defaults_read_freely_and_ask_for_the_rest(permission: str, pattern: str, action: str) -> None:
    assert verdict(permission, pattern, {}) == action


def test_the_most_specific_pattern_wins_in_any_order() -> None:
    table: dict[str, Action] = {"*": "allow", "src/": "ask", "src/keep/": "allow", "src/keep/x": "deny"}
    wanted = {"a": "allow", "src/a": "ask", "src/keep/a": "allow", "src/keep/x": "deny"}
    for order in permutations(table.items()):
        got = {path: verdict("edit", path, {"edit": dict(order)}) for path in wanted}
        assert got == wanted


@pytest.mark.parametrize("mode", ["ask", "acceptEdits", "plan", "auto"])
def test_a_deny_of_the_person_is_final_in_every_mode(mode: Mode) -> None:
    grants = (Rule("edit", "*", "allow"),)
    rules = rules_from({"edit": {"locked/": "deny"}})
    assert judge(request("edit", "locked/a"), rules, grants, mode).action == "deny"


def test_modes_let_through_what_would_be_asked_and_nothing_else() -> None:
    assert verdict("edit", "a.py", {}, "acceptEdits") == "allow"
    assert verdict("bash", "ls", {}, "acceptEdits") == "ask"
    assert verdict("bash", "ls", {}, "auto") == "allow"
    assert verdict("external_directory", "/x", {}, "auto") == "ask"
    assert verdict("edit", "a.py", {"edit": "allow"}, "plan") == "deny"


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".envrc", ".vscode/tasks.json", "deskmate.toml"])
def test_files_that_run_later_are_asked_even_in_auto_mode(path: str) -> None:
    assert verdict("edit", path, {}, "auto") == "ask"
    assert verdict("edit", path, {"edit": "allow"}, "auto") == "ask"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("*.py", ".git/hooks/x.py"), ("**", ".env"), ("/**", "deskmate.toml"), ("src/**", "src/.envrc")],
)
def test_a_rule_that_does_not_name_a_guarded_file_does_not_open_it(pattern: str, path: str) -> None:
    assert verdict("edit", path, {"edit": {pattern: "allow"}}) == "ask"


def test_a_rule_that_names_a_guarded_file_or_folder_opens_it() -> None:
    assert verdict("edit", ".git/hooks/x.py", {"edit": {".git/hooks/": "allow"}}) == "allow"
    assert verdict("read", ".env", {"read": {"*": "allow", ".env": "allow"}}) == "allow"
    assert verdict("read", ".env", {"read": "allow"}) == "ask"


def test_a_session_grant_answers_what_would_be_asked() -> None:
    grants = (Rule("bash", "git status*", "allow"),)
    assert judge(request("bash", "git status -s"), (), grants, "ask").action == "allow"
    assert judge(request("bash", "git statusfoo"), (), grants, "ask").action == "ask"
    assert judge(request("bash", "git status; rm x"), (), grants, "ask").action == "ask"


def test_the_strictest_pattern_of_a_request_decides() -> None:
    rules = rules_from({"edit": {"*": "allow", "b": "deny"}})
    assert judge(request("edit", "a", "b"), rules, (), "ask").action == "deny"
    assert judge(request("edit"), rules, (), "ask").action == "ask"


@pytest.mark.parametrize("joint", [" && ", "; ", " || ", " | ", "\n", " & "])
def test_a_denied_command_is_found_in_chains(joint: str) -> None:
    table: dict[str, Action | dict[str, Action]] = {"bash": {"git *": "allow", "rm *": "deny"}}
    assert verdict("bash", f"git status{joint}rm -rf x", table) == "deny"
    assert verdict("bash", "git status", table) == "allow"


@pytest.mark.parametrize(
    "command",
    ["git log $(rm x)", "git log `rm x`", "git log > f", "git log *", "X=1 git log", 'git log "$X"'],
)
def test_only_a_plain_command_is_allowed_by_a_rule(command: str) -> None:
    assert plain_words(command) is None
    assert verdict("bash", command, {"bash": {"git *": "allow"}}) != "allow"


def test_quotes_make_words_and_single_quotes_hide_everything() -> None:
    assert plain_words("git log '$(rm x)'") == "git log $(rm x)"
    assert plain_words('echo "a b"') == "echo a b"
    assert plain_words("echo 'open") is None
    assert "rm -rf x" in pieces("git status && rm -rf x")
