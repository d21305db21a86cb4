"""Every module keeps the house's rules; every rule can be broken."""

import pytest

from tests.architecture.rules import MAKES_TASKS, PRINTS, RULES, Check, Rule, tasks_have_parents
from tests.architecture.source import Source, our_modules


@pytest.mark.parametrize(
    "check", dict.fromkeys(rule.check for rule in RULES), ids=lambda check: check.__name__
)
def test_every_module_keeps_the_rule(check: Check) -> None:
    faults = [fault for source in our_modules() for fault in check(source)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_rule_catches_what_breaks_it(rule: Rule) -> None:
    assert list(rule.check(Source.parse(*rule.sample)))


def test_a_task_group_that_its_function_waits_for_may_make_tasks() -> None:
    text = "async def f():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(g())"
    assert not list(tasks_have_parents(Source.parse("session/deskmate_session/runtime/x.py", text)))


def test_exceptions_have_reasons() -> None:
    assert all(len(reason) > 20 for reason in (*PRINTS.values(), *MAKES_TASKS.values()))
