"""The commands, as a person starts them: real processes, a scripted model, temporary homes."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DESKMATE = (sys.executable, "-m", "deskmate_server")
KEY = "sk-very-secret-0123456789"
PROVIDER = 'model = "p/m"\n[providers.p]\nkind = "openai"\nbase_url = "https://p.example/v1"\n'
SCRIPT = """
# turn
when: slow
## answer
say: I wait.
call bash {"command": "sleep 60"}

# turn
when: edit
## answer
say: I edit it.
call read {"path": "a.txt"}
## answer
call edit {"path": "a.txt", "old": "one", "new": "two"}
## answer
say: Edited.
"""


@dataclass
class Home:
    """A person's homes and one workspace."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "work"

    @property
    def config(self) -> Path:
        return self.root / "config" / "deskmate" / "config.toml"

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))
        }
        (self.root / "tmp").mkdir(exist_ok=True)
        return {
            **kept,
            "HOME": str(self.root),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "XDG_STATE_HOME": str(self.root / "state"),
            "TMPDIR": str(self.root / "tmp"),
        }

    def start(self, *args: str, **more: Any) -> "subprocess.Popen[str]":
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*DESKMATE, *args], cwd=self.folder, env=self.environment, text=True, **{**pipes, **more}
        )

    def run(self, *args: str, text: str = "", env: dict[str, str] | None = None) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        done = subprocess.run(
            [*DESKMATE, *args],
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def file(self) -> str:
        return (self.folder / "a.txt").read_text()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """With a scripted model."""
    made = Home(tmp_path)
    made.folder.mkdir()
    (made.folder / "a.txt").write_text("one\n")
    made.config.parent.mkdir(parents=True)
    (tmp_path / "script.txt").write_text(SCRIPT)
    made.config.write_text(
        f'model = "demo/x"\n[providers.demo]\nkind = "scripted"\nbase_url = "{tmp_path}/script.txt"\n'
    )
    return made


def in_order(text: str, *phrases: str) -> None:
    """The text holds these phrases, one after the other."""
    at = 0
    for phrase in phrases:
        found = text.find(phrase, at)
        assert found >= 0, f"{phrase!r} does not come where it should in:\n{text}"
        at = found + len(phrase)


# The demo.


def test_the_demo_shows_a_whole_session_and_leaves_nothing(home: Home) -> None:
    # The person's own rules are no part of the demo.
    home.config.write_text(home.config.read_text() + '[permission]\nedit = "deny"\nbash = "deny"\n')
    code, out, err = home.run("demo")
    assert (code, err) == (0, "")
    in_order(
        out,
        "no key, no network",
        "answered with 'once'",
        "The tests before",
        "AssertionError: 2000 != 1700",
        "a test fails",
        "you: One of the tests fails.",
        "I look before I change anything.",
        "… read test_pricing.py",
        "▸ read",
        "✓ read",
        "? Edit pricing.py (permission 'edit')",
        "    -    if quantity > BULK_FROM:",
        "    +    if quantity >= BULK_FROM:",
        "answered: once",
        "✓ edit pricing.py",
        "? Run the tests (permission 'bash')",
        "    $ python3 -m unittest",
        "answered: once",
        "✓ bash python3 -m unittest: exit code 0, OK",
        "All three tests pass.",
        "The change",
        "+    if quantity >= BULK_FROM:",
        "The tests after",
        "the tests pass",
        "The log",
        "prompt    One of the tests fails.",
        "asks      may it edit pricing.py?",
        "reply     once (person)",
        "changes   pricing.py +1 -1 (through the editor)",
        "asks      may it run python3 -m unittest?",
        "end       stop; 4 steps",
        "verify: ok",
    )
    assert "\x1b" not in out
    assert list((home.root / "tmp").iterdir()) == []
    assert not (home.root / "state").exists()


def on_a_terminal(home: Home, *answers: bytes, before: bytes = b"") -> tuple[int, str]:
    """The demo in a pseudo-terminal; each ask gets the next answer. `before`: typed at its start."""
    main, side = pty.openpty()
    os.write(main, before)
    process = home.start("demo", stdin=side, stdout=side, stderr=side, start_new_session=True)
    os.close(side)
    left, asked, seen = list(answers), 0, b""
    while select.select([main], [], [], 30)[0]:
        try:
            piece = os.read(main, 65536)
        except OSError:  # the last one of the terminal's other side is gone
            break
        seen += piece
        if seen.count(b"[n] no  > ") > asked:
            asked += 1
            answer = left.pop(0)
            if answer == b"\x03":
                process.send_signal(signal.SIGINT)
            else:
                os.write(main, answer)
    code = process.wait(timeout=30)
    os.close(main)
    assert list((home.root / "tmp").iterdir()) == []
    assert left == []
    return code, re.sub(r"\x1b\[\d*m", "", seen.decode())


def test_a_person_who_says_no_is_told_that_nothing_was_changed(home: Home) -> None:
    code, seen = on_a_terminal(home, b"what?\n", b"\n", b"n\n")
    assert code == 1
    in_order(
        seen,
        "? Edit pricing.py",
        "> ",
        "Type y, s or n, then Enter.",
        "> ",
        "Type y, s or n, then Enter.",
        "> ",
        "nothing was changed",
        "reply     reject (person)",
        "verify: ok",
    )
    assert "You said no, so nothing was changed." in seen
    assert "failed" not in seen.partition("verify: ok")[2]


def test_what_was_typed_before_the_demo_asks_answers_nothing(home: Home) -> None:
    code, seen = on_a_terminal(home, b"n\n", before=b"y\ny\ny\n")
    assert code == 1
    assert "You said no, so nothing was changed." in seen


def test_a_demo_that_can_not_be_written_says_so_in_one_line(home: Home) -> None:
    with Path("/dev/full").open("w") as full:
        process = home.start("demo", stdout=full)
        err = process.communicate(timeout=60)[1]
    words = "deskmate: the output could not be written: No space left on device\n"
    assert (process.returncode, err) == (1, words)


def test_ctrl_c_interrupts_the_demo_in_order(home: Home) -> None:
    code, seen = on_a_terminal(home, b"y\n", b"\x03")
    assert code == 130
    in_order(seen, "✓ edit pricing.py", "? Run the tests", "interrupted")
    assert "deskmate_server" not in seen  # no traceback of ours


# One turn.


def test_asks_are_rejected_with_the_flag_that_would_allow_them(home: Home) -> None:
    code, out, err = home.run("run", "edit it")
    assert (code, out, home.file()) == (1, "I edit it.\n", "one\n")
    in_order(
        err, "✓ read a.txt", "rejected", "Edit a.txt", "--allow edit=a.txt", "--allow edit", "✗ edit a.txt"
    )
    assert "the turn ended with 'denied'" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "flags", [("--allow", "edit"), ("--allow", "edit=a.txt"), ("--mode", "acceptEdits"), ("--mode", "auto")]
)
def test_what_is_allowed_is_done(home: Home, flags: tuple[str, str]) -> None:
    code, out, err = home.run("run", "edit it", *flags)
    assert (code, out, home.file()) == (0, "I edit it.\nEdited.\n", "two\n")
    assert [line[:3] for line in err.splitlines()] == ["✓ r", "✓ e"]


def test_the_flag_stands_above_a_configured_ask_and_below_a_configured_deny(home: Home) -> None:
    config = home.config.read_text()
    home.config.write_text(config + '[permission]\nedit = "ask"\n')
    assert home.run("run", "edit it", "--allow", "edit")[0] == 0
    (home.folder / "a.txt").write_text("one\n")
    home.config.write_text(config + '[permission]\nedit = "deny"\n')
    home.run("run", "edit it", "--allow", "edit")
    assert home.file() == "one\n"


def test_json_is_one_update_a_line_and_the_result_last(home: Home) -> None:
    code, out, err = home.run("run", "-", "--json", "--allow", "edit", text="edit it\n")
    assert (code, err) == (0, "")
    updates = [json.loads(line) for line in out.splitlines()]
    assert updates[0]["kind"] == "accepted"
    assert (
        "".join(u["text"] for u in updates if u["kind"] == "delta" and u["field"] == "text")
        == "I edit it.Edited."
    )
    assert updates[-1]["kind"] == "result"
    assert (updates[-1]["finish"], updates[-1]["steps"]) == ("stop", 3)


def test_an_ephemeral_run_keeps_nothing(home: Home) -> None:
    assert home.run("run", "edit it", "--ephemeral", "--allow", "edit")[0] == 0
    assert not (home.root / "state").exists()
    assert list((home.root / "tmp").iterdir()) == []


def test_a_session_goes_on(home: Home) -> None:
    assert home.run("run", "edit it", "--continue")[2].startswith("deskmate: there is no session")
    home.run("run", "edit it")
    listed = home.run("sessions", "list")[1]
    assert home.run("run", "edit it", "--continue", "--allow", "edit")[0] == 0
    assert home.run("run", "slow", "--session", listed.split()[0])[0] == 1
    assert len(home.run("sessions", "list")[1].splitlines()) == 1
    code, _, err = home.run("run", "hi", "--session", "ses_none")
    assert code == 1
    assert "there is no session 'ses_none'" in err


def test_a_failed_turn_says_why(home: Home) -> None:
    code, out, err = home.run("run", "something else")
    assert (code, out) == (1, "")
    in_order(err, "'error': badResponse", "has no turn for the prompt", "add it to the script")
    assert "Traceback" not in err


def events_of(home: Home) -> list[dict[str, Any]]:
    return [json.loads(line) for line in home.run("sessions", "show", "--json")[1].splitlines()]


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_settles_the_turn_and_nobody_else_does(home: Home, signals: int) -> None:
    process = home.start("run", "slow", "--allow", "bash", "--json")
    assert process.stdout is not None
    for line in process.stdout:
        if '"running"' in line:
            break
    # Looking at the log of a process that lives must not end its turn.
    during = [event["type"] for event in events_of(home)]
    assert "call.started" in during
    assert "turn.ended" not in during
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=30)
    assert (process.returncode, json.loads(rest.splitlines()[-1])["finish"]) == (130, "interrupted")
    assert "Traceback" not in err
    types = [event["type"] for event in events_of(home)]
    assert types[len(during) :] == ["interrupt.requested", "call.failed", "turn.ended"]


# The doctor.


def test_the_doctor_says_what_to_do_without_a_model(home: Home) -> None:
    home.config.unlink()
    code, out, _ = home.run("doctor")
    assert code == 1
    in_order(out, "SQLite 3.", "does not exist", "✗ no model is configured", "can be written", "no log yet")
    in_order(out, "To do:", "set ANTHROPIC_API_KEY or OPENAI_API_KEY")
    code, out, err = home.run("run", "hi")
    assert (code, out) == (1, "")
    in_order(err, "no model is configured", "ANTHROPIC_API_KEY", "deskmate demo")


def test_the_doctor_is_content_and_tells_the_rules(home: Home) -> None:
    unusable = "[streaming]\nchunk_size = -1\n"
    home.config.write_text(home.config.read_text() + unusable + '[permission]\nbash = "deny"\n')
    home.run("run", "edit it")
    code, out, _ = home.run("doctor")
    assert code == 0
    in_order(
        out,
        str(home.config),
        "! " + str(home.config) + ": streaming.chunk_size is ignored",
        "demo/x: plays the script",
        "events, verified",
        "bash *: deny (yours)",
        "All that",
    )


@pytest.mark.parametrize(
    ("config", "env", "where"),
    [
        ("", {"ANTHROPIC_API_KEY": KEY}, "the environment variable ANTHROPIC_API_KEY"),
        (
            f'{PROVIDER}api_key = "{KEY}"\n',
            {},
            "key from [providers.p] in ",
        ),
        (
            PROVIDER + 'api_key = "{env:MINE}"\n',
            {"MINE": KEY},
            "the environment variable MINE, named in [providers.p]",
        ),
        (
            'model = "l/m"\n[providers.l]\nkind = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n',
            {},
            "local server 'l' (openai) at http://127.0.0.1:1/v1",
        ),
    ],
)
def test_the_doctor_tells_where_the_key_comes_from_and_never_the_key(
    home: Home, config: str, env: dict[str, str], where: str
) -> None:
    home.config.write_text(config)
    code, out, err = home.run("doctor", env=env)
    assert code == 0
    assert where in " ".join(out.split())
    assert KEY not in out + err


def test_a_damaged_log_is_set_aside_and_told_on_stderr(home: Home) -> None:
    home.run("run", "edit it")
    (database,) = (home.root / "state").rglob("events.db")
    database.with_name("events.db-wal").unlink(missing_ok=True)
    database.write_bytes(b"no database" * 1000)
    code, _, err = home.run("sessions", "list", "--all")
    assert code == 1
    assert "damaged" in err
    code, _, err = home.run("doctor")
    assert code == 0
    assert "warning: the event log was damaged" in err
    assert "Traceback" not in err
    (kept,) = database.parent.glob("events.damaged-*.db")
    assert str(kept) in err
    assert kept.read_bytes() == b"no database" * 1000
    code, _, err = home.run("sessions", "list", "--all")
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("config", "fault", "step"),
    [
        ('model = "demo/x\n', "✗ {config}: can't be read", "→ mend {config}"),
        ('agent = "plan"\n', "✗ there is no agent 'plan'", "to one of: build"),
    ],
)
def test_the_doctor_finds_what_is_wrong_in_the_configuration(
    home: Home, config: str, fault: str, step: str
) -> None:
    home.config.write_text(config + home.config.read_text())
    code, out, _ = home.run("doctor")
    assert code == 1
    in_order(out, fault.format(config=home.config), "To do:", step.format(config=home.config))
    assert (f"✓ {home.config}" in out) == ("agent" in fault)
    assert "All that is needed" not in out


def test_the_doctor_reads_the_script(home: Home) -> None:
    (home.root / "script.txt").write_text("say: hello\nfrobnicate\n")
    code, out, _ = home.run("doctor")
    assert code == 1
    in_order(out, f"✗ {home.root}/script.txt:2:", "→ mend the script of demo/x")
    (home.root / "script.txt").unlink()
    assert "✗ can't read the script" in home.run("doctor")[1]


# Sessions.


def test_sessions_are_listed_and_told(home: Home) -> None:
    assert "no sessions in" in home.run("sessions")[1]
    assert not (home.root / "state").exists()
    home.run("run", "edit it", "--allow", "edit")
    code, listed, _ = home.run("sessions", "list")
    assert code == 0
    assert re.fullmatch(r"ses_\w+  \d{4}-\d\d-\d\d \d\d:\d\d  edit it\n", listed)
    code, everywhere, _ = home.run("sessions", "list", "--all")
    assert (code, everywhere) == (0, f"{home.folder}\n{listed}")
    code, told, _ = home.run("sessions", "show", listed.split()[0])
    assert code == 0
    in_order(told, "prompt    edit it", "says      I edit it.", "done      read a.txt: 1 line")
    in_order(
        told,
        "calls     edit a.txt",
        "changes   a.txt +1 -1 (on disk)",
        "done      edit a.txt",
        "end       stop",
    )
    assert told == home.run("sessions", "show")[1]
    assert home.run("sessions", "show", "ses_none")[0] == 1


def test_a_reader_that_has_seen_enough_is_no_failure(home: Home) -> None:
    home.run("run", "edit it")
    process = home.start("sessions", "show")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(timeout=30)) == ("", 1)
