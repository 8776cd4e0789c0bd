"""What a person asks for becomes one request; what cannot be meant is refused before anyone is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pool.config import EndpointConfig, PoolConfig
from swarm.cli.request import merge, ready, task_for
from swarm.cli.task_file import BudgetPart, TaskFile
from swarm.config import BrokerAddress, DaemonConfig, RepositoryConfig, Settings
from swarm.errors import TaskError
from swarm.types import Budget


def settings(**repositories: RepositoryConfig) -> Settings:
    return Settings(
        daemon=DaemonConfig(state=Path("/s"), socket=Path("/d")),
        broker=BrokerAddress(socket=Path("/b")),
        pool=PoolConfig(endpoints=(EndpointConfig(name="a", url="http://127.0.0.1:1", tier="fast"),)),
        repositories=repositories,
        limits=Budget(steps=9, tokens=900, wall=90.0, attempts=1),
    )


def test_the_command_line_goes_before_the_file() -> None:
    file = TaskFile(instructions="from file", repository="web", budget=BudgetPart(steps=5, tokens=50))
    wanted = merge(file, {"instructions": "from me", "repository": None, "paths": ()}, {"steps": 3, "tokens": None})
    assert (wanted.instructions, wanted.repository) == ("from me", "web")
    assert (wanted.budget.steps, wanted.budget.tokens) == (3, 50)


def test_that_a_task_is_to_change_tests_is_a_persons_word_by_file_or_option() -> None:
    file = TaskFile(instructions="x", repository="web", changes_tests=True)
    assert ready(merge(file, {"changes_tests": None}, {}), settings(), None).changes_tests is True
    plain = TaskFile(instructions="change the tests", repository="web")
    assert ready(plain, settings(), None).changes_tests is False
    assert ready(merge(plain, {"changes_tests": True}, {}), settings(), None).changes_tests is True


def test_of_a_partial_budget_what_is_said_is_sent_and_the_daemon_fills_it() -> None:
    request = ready(TaskFile(instructions="x", repository="web", budget=BudgetPart(steps=3)), settings(), None)
    assert json.loads(request.model_dump_json(exclude_unset=True))["budget"] == {"steps": 3}
    assert ready(TaskFile(instructions="x", repository="web"), settings(), None).budget is None


def test_the_only_repository_need_not_be_named() -> None:
    one = settings(web=RepositoryConfig(base="dev", strategy="agent"))
    request = ready(TaskFile(instructions="x"), one, "key")
    assert (request.repository, request.base, request.strategy) == ("web", "dev", "agent")
    assert request.idempotency_key == "key"


@pytest.mark.parametrize(
    ("wanted", "message", "mend"),
    [
        ({}, "no instructions", "--file"),
        ({"instructions": " \n"}, "no instructions", "--file"),
        ({"instructions": "x"}, "no repository is named", "web, db"),
        ({"instructions": "x", "repository": "web", "tier": "fats"}, 'serves the tier "fats"', "did you mean fast"),
        ({"instructions": "x", "strategy": "cli:aidre", "repository": "web"}, 'no agent "aidre"', 'mean "aider"'),
        ({"instructions": "x", "repository": "web", "paths": ("../x",)}, "leads out of the repository", "src/"),
        ({"instructions": "x", "repository": "web", "paths": ("/x",)}, "must be relative", "src/"),
        ({"instructions": "x", "repository": "web", "paths": ("a\x1bb",)}, "control", "src/"),
        ({"instructions": "x" * 100_001, "repository": "web"}, "instructions", "--help"),
        ({"instructions": "x", "repository": "web", "title": "t" * 201}, "title", "--help"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_mend(wanted: dict[str, Any], message: str, mend: str) -> None:
    two = settings(web=RepositoryConfig(), db=RepositoryConfig())
    with pytest.raises(TaskError) as caught:
        ready(TaskFile().model_copy(update=wanted), two, None)
    assert message in str(caught.value)
    assert mend in caught.value.mend
    assert "\x1b" not in str(caught.value)


def test_the_same_key_asks_for_the_same_task() -> None:
    assert task_for("a") == task_for("a") != task_for("b")
    assert task_for(None) != task_for(None)
