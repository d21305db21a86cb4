"""`deskmate run` around a process that dies: what it says, and how a person goes on."""

import signal
import subprocess
import time
from pathlib import Path

from tests.e2e.test_cli import Home, home

__all__ = ["home"]

SCRIPT = """
# turn
when: slow
## answer
say: I wait.
call bash {"command": "sleep 60"}

# turn
when: cut off
## answer
say: I went on.

# turn
when: hello
## answer
say: Hello to you.
"""


def slow(home: Home) -> "subprocess.Popen[str]":
    """A run whose command runs."""
    (home.root / "script.txt").write_text(SCRIPT)
    process = home.start("run", "slow", "--allow", "bash", "--json")
    assert process.stdout is not None
    for line in process.stdout:
        if '"running"' in line:
            return process
    raise AssertionError("the command never ran")


def killed(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def session_of(home: Home) -> str:
    return home.run("sessions", "list")[1].split()[0]


def queued(home: Home, session: str) -> "subprocess.Popen[str]":
    """A second run that waits behind the first."""
    waiting = home.start("run", "hello", "--session", session)
    until = time.monotonic() + 30
    while (
        '"messageId":"' not in (said := home.run("sessions", "show", session, "--json")[1])
        or said.count('"type":"message.received"') < 2
    ):
        assert time.monotonic() < until
    return waiting


def test_a_run_that_was_killed_is_resumed_from_the_terminal(home: Home) -> None:
    killed(slow(home))
    code, _, err = home.run("sessions", "list")
    assert code == 0
    assert "was cut off when its process ended" in err
    assert "deskmate run --session ses_" in err
    told = home.run("sessions", "show")[1]
    assert "outcome unknown" in told
    code, out, _ = home.run("run", "--continue")
    assert (code, out.strip()) == (0, "I went on.")


def test_a_run_that_waits_behind_one_that_dies_goes_on(home: Home) -> None:
    first = slow(home)
    waiting = queued(home, session_of(home))
    killed(first)
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out.strip()) == (0, "Hello to you.")
    assert "was cut off" in err


def test_a_run_that_waits_is_taken_back_by_a_signal_and_the_other_goes_on(home: Home) -> None:
    first = slow(home)
    waiting = queued(home, session_of(home))
    waiting.send_signal(signal.SIGTERM)
    _, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 130
    assert "taken back" in err
    assert first.poll() is None
    killed(first)


def test_the_doctor_tells_of_a_damaged_log_that_was_set_aside(home: Home) -> None:
    (home.root / "script.txt").write_text(SCRIPT)
    assert home.run("run", "hello")[0] == 0
    [database] = Path(home.root / "state").glob("deskmate/*/events.db")
    database.write_bytes(b"no database at all" * 1_000)
    assert "the event log was damaged" in home.run("sessions", "list")[2]
    assert "is a damaged log that was set aside" in home.run("doctor")[1]
