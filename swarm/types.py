"""What is to be done and what happened: frozen data, no I/O.

Long, since it is the one vocabulary of the hall; nothing in it decides.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

AMOUNT = 10**15  # what a number that is asked for may be at most
STRATEGY = r"^(cli:)?[a-z0-9][a-z0-9._-]{0,63}$"  # a way to work, as a file may name one
Label = Annotated[str, Field(min_length=1, max_length=200)]
TaskId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]


INTAKE = "forge:"
"""Begins the idempotency keys of whatever was asked for on a forge; nobody else's do."""


class Frozen(BaseModel):
    """Base of the hall's values: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskState(StrEnum):
    """Where a task stands. The last ten are final; `lifecycle` owns the legal moves."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DELIVERING = "delivering"
    DELIVERED = "delivered"
    NO_CHANGE = "no_change"
    LIMIT_HIT = "limit_hit"
    GAVE_UP = "gave_up"
    CHECKS_FAILED = "checks_failed"
    INFRA_FAILED = "infra_failed"
    REFUSED = "refused"
    NEEDS_PERSON = "needs_person"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        """Whether nothing more happens by itself."""
        return self not in {TaskState.QUEUED, TaskState.RUNNING, TaskState.PAUSED, TaskState.DELIVERING}


FailureKind = Literal["infrastructure", "model", "agent", "policy", "person"]
"""Whose doing a bad end was: faults of the first two are retried on one budget, an agent's never blindly."""


class Phase(StrEnum):
    """The coarse steps of an attempt, each of them a durable step of the engine."""

    PREPARE = "prepare"
    WORK = "work"
    SEAL = "seal"
    CHECK = "check"
    DELIVER = "deliver"


class Budget(Frozen):
    """What one task may spend over all its attempts. ``wall`` and ``idle`` are in seconds; None is no limit.

    ``money`` is in the currency of the settings' prices. All but ``attempts`` and ``idle`` count over the lineage as
    well: whatever follows, forks or goes on with the task spends from the first one's.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    steps: int = Field(default=60, gt=0, le=AMOUNT, description="turns of the agent")
    tokens: int = Field(default=400_000, gt=0, le=AMOUNT, description="tokens read and written by the models")
    wall: float = Field(default=1800.0, gt=0, description="seconds of wall clock")
    attempts: int = Field(default=2, gt=0, le=AMOUNT, description="tries, the first one included")
    gpu_seconds: float | None = Field(
        default=None, gt=0, description="seconds that its calls are on an engine, times the endpoint's GPUs"
    )
    money: float | None = Field(default=None, gt=0, description="what its calls cost by [prices]")
    idle: float | None = Field(default=None, gt=0, description="seconds without a model's answer or a tool's output")
    rounds: int | None = Field(
        default=None, ge=0, le=AMOUNT, description="further tasks on its pull request, as after a review"
    )


class Spent(Frozen):
    """What was spent so far, in the units of Budget. Of ``prompt_tokens`` a cache held ``cached_tokens``."""

    steps: int = 0
    tokens: int = 0
    wall: float = 0.0
    attempts: int = 0
    gpu_seconds: float = 0.0
    money: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0


class TaskRequest(Frozen):
    """What a person submits."""

    model_config = ConfigDict(allow_inf_nan=False)

    repository: str
    instructions: str = Field(min_length=1, max_length=100_000)
    base: str | None = None
    capability: str = ""
    base_commit: str = ""
    test_command: str | None = None
    strategy: str = "auto"
    tier: str | None = None
    budget: Budget | None = None
    paths: tuple[str, ...] = Field(default=(), description="where to look first, relative to the repository")
    changes_tests: bool = Field(
        default=False,
        description="it is to change what is tested: the base's own tests do not count where it changes them, and what "
        "they say is told",
    )
    title: str | None = Field(default=None, max_length=200)
    idempotency_key: str | None = Field(default=None, max_length=200)
    task: TaskId | None = Field(
        default=None, description="the id to give it: the task that the capability was granted for; default: a new one"
    )
    follows: TaskId | None = Field(
        default=None, description="the task whose pull request is worked on further; the capability is that task's"
    )
    priority: int = Field(default=50, ge=0, le=100, description="larger is sooner; waiting makes up for less of it")
    needs: tuple[TaskId, ...] = Field(
        default=(), max_length=50, description="tasks to be delivered first, whose results it is told"
    )
    mutex: str | None = Field(
        default=None, min_length=1, max_length=200, description="no two tasks with the same word run at a time"
    )
    requires: tuple[Label, ...] = Field(
        default=(), max_length=20, description="labels that its host must have, as gpu or arch=aarch64"
    )
    expires: float | None = Field(default=None, gt=0, description="seconds after which it leaves the queue unclaimed")
    batch: str | None = Field(default=None, max_length=100, description="name of the batch that it came in")
    standing: bool = Field(
        default=False,
        description="the capability is a standing one: the task's own right is drawn when it starts, on the base as it "
        "is then",
    )

    def alike(self, other: TaskRequest) -> bool:
        """Whether another request asks for the same. Each may bring its own right, which names commit and base."""
        right = {"capability", "base_commit", "task", "standing"}
        right |= {"base"} if None in {self.base, other.base} else set()
        return self.model_dump(exclude=right) == other.model_dump(exclude=right)


class ForkRequest(Frozen):
    """A new task that goes on from where an attempt of another one stood, with all that it had done paid already.

    Everything that is not said here is as in the other task.
    """

    task: TaskId = Field(description="the new task's id, for which the capability was granted")
    capability: str
    attempt: str | None = Field(default=None, description="whose work is gone on with; default: the last with any")
    step: int | None = Field(
        default=None, ge=0, le=AMOUNT, description="number of the last journal line that it knows of"
    )
    instructions: str | None = Field(
        default=None, min_length=1, max_length=100_000, description="said to the agent when it goes on"
    )
    tier: str | None = None
    title: str | None = Field(default=None, max_length=200)
    budget: Budget | None = None


class TaskMessage(Frozen):
    """What a person says to the agent of a task."""

    task: TaskId
    seq: int
    at: float
    author: str
    text: str
    attempt: str | None = Field(default=None, description="which was told it last; None while none was")
    when: str = Field(default="", description="when it will be told, as known when it was left")


class Task(Frozen):
    """A task as stored; never changed after it was accepted."""

    id: TaskId
    request: TaskRequest
    budget: Budget
    created: float


class Needed(Frozen):
    """What became of a task that another one needs. Title and summary are an agent's words: data."""

    task: TaskId
    repository: str
    state: TaskState
    title: str = ""
    summary: str = ""
    branch: str | None = None
    pull_request: str | None = None
    commit: str | None = None


class Attempt(Frozen):
    """One try at a task."""

    id: str
    task: TaskId
    number: int
    tier: str
    strategy: str
    started: float
    ended: float | None = None
    ending: str | None = None
    detail: str = ""
    spent: Spent = Spent()
    salvage: str | None = Field(default=None, description="the ref that holds what this attempt left")
    failure: FailureKind | None = Field(default=None, description="whose doing a bad end was")
    way: str = Field(default="", description="the way that did it where several were there, and why it was chosen")


class Step(Frozen):
    """One line of the journal: something that happened in an attempt."""

    task: TaskId
    attempt: str | None
    seq: int
    at: float
    kind: str
    data: dict[str, Any] = Field(default_factory=dict)


class TestRun(Frozen):
    """One run of the test command in a fresh sandbox."""

    __test__ = False

    command: str
    exit_code: int
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = Field(default=(), description="also those that may fail (xfail)")
    seconds: float = 0.0
    timed_out: bool = False
    out_of_memory: bool = False
    tail: str = ""


WeakenedKind = Literal[
    "deleted",
    "skipped",
    "emptied",
    "fewer",
    "loosened",
    "expectation",
    "patched",
    "exit",
    "steered",
    "evaded",
    "unread",
]
"""What became of a test: see docs/checks.md, which has a row for each."""


class Weakened(Frozen):
    """Something in a change that makes its tests demand less, as its text tells; a person judges whether it should.

    ``path``, ``test`` and ``text`` hold words of the change itself: data.
    """

    kind: WeakenedKind
    path: str = Field(max_length=4096)
    test: str = Field(default="", max_length=500)
    text: str = Field(default="", max_length=400)

    @property
    def where(self) -> str:
        """File and test in one."""
        return f"{self.path}: {self.test}" if self.test else self.path


class CheckReport(Frozen):
    """The base and the sealed tree under the same command.

    ``weakened`` is what the change takes from its tests, ``flaky`` are tests that it does not touch, which failed once
    and passed when they were run again.
    """

    base: TestRun | None
    proposal: TestRun | None
    fixed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    weakened: tuple[Weakened, ...] = ()
    flaky: tuple[str, ...] = ()
    verdict: Literal["passed", "failed", "not_run"]
    reason: str = ""


Ending = Literal["finished", "no_change", "limit_hit", "gave_up", "asked", "cancelled", "infra_failed"]
"""``asked``: the agent put a question to a person, and stands still until it is answered."""


class Conclusion(Frozen):
    """How the work phase of an attempt ended, in the strategy's own words.

    ``lessons`` tell a fresh attempt what was tried and what came of it: a model's words in it are data.
    """

    ending: Ending
    title: str = ""
    summary: str = ""
    model: str = ""
    strategy: str = Field(default="", description="the way that did it, where another one chose it")
    why: str = Field(default="", description="why that way was chosen")
    tried: dict[str, int] = Field(
        default_factory=dict, description="tokens by way, of those that were tried in turn, the one that did it last"
    )
    limit: str = Field(default="", description="which limit was hit, as task.tokens, lineage.money or fleet.steps")
    lessons: str = Field(default="", max_length=20_000)


class Experience(Frozen):
    """What became of one way of working in an earlier attempt at a repository, and what it took."""

    strategy: str
    tier: str
    solved: bool
    tokens: int
    at: float


class Happening(Frozen):
    """What the broker saw on a forge. Words in it are a stranger's: data, never instructions to us."""

    number: int
    repository: str
    kind: Literal["intake", "review", "check", "conflict", "merged", "closed", "needs-human"]
    task: str
    capability: str = Field(default="", description="of an intake: the right to do it")
    base: str = ""
    base_commit: str = ""
    issue: int | None = None
    pull: int | None = None
    sender: str = ""
    title: str = ""
    text: str = ""
    url: str = ""


class Failure(Frozen):
    """Why something ended badly: what it was, why, and what would mend it. The api's body for every refusal."""

    what: str
    why: str
    mend: str = ""


class Sealed(Frozen):
    """What an attempt left, as git objects in the daemon's trusted git directory."""

    base: str
    tree: str
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    changed: bool


class Fault(Frozen):
    """Broken machinery. ``passing`` may go away by itself, ``lasting`` will not, ``person`` needs someone's hand.

    ``whose`` doing it is: see `failures`.
    """

    kind: Literal["passing", "lasting", "person"]
    failure: Failure
    whose: FailureKind = "infrastructure"

    @property
    def text(self) -> str:
        """In one line."""
        return f"{self.failure.what}: {self.failure.why}" + (f" ({self.failure.mend})" if self.failure.mend else "")


class AttemptResult(Frozen):
    """Everything that an attempt came to, before anyone judged it."""

    conclusion: Conclusion
    sealed: Sealed | None = None
    report: CheckReport | None = None
    fault: Fault | None = None


class Outcome(Frozen):
    """The end of an attempt's run: what it came to and, where it was delivered, the broker's word in its own keys."""

    result: AttemptResult
    verdict: dict[str, Any] | None = None
    fault: Fault | None = Field(default=None, description="why it could not be delivered")


class Eta(Frozen):
    """When a queued task is likely to be done, in seconds from now: at best and at worst."""

    low: float
    high: float


class TaskView(Frozen):
    """A task with everything that a person asks of it; made by the store, shown by api and cli."""

    task: Task
    state: TaskState
    reason: str = ""
    spent: Spent = Spent()
    attempts: tuple[Attempt, ...] = ()
    report: CheckReport | None = None
    pull_request: str | None = None
    branch: str | None = None
    commit: str | None = None
    timings: dict[str, float] = Field(default_factory=dict, description="seconds of wall clock by part: see `Times`")
    updated: float = 0.0
    place: int | None = Field(default=None, description="in the queue by age and priority; 1 is next")
    eta: Eta | None = Field(default=None, description="None where too little is known")
    waits_for: str = Field(default="", description="why it does not run yet; empty when only its turn has to come")
    failure: FailureKind | None = Field(default=None, description="whose doing a bad end was")
    user: str = Field(default="", description="who handed it in: a user of the daemon's machine, or a token's name")
    host: str | None = Field(default=None, description="which daemon works on it now")

    @property
    def asks(self) -> bool:
        """Whether it stands still until a person answers its agent."""
        last = self.attempts[-1].ending if self.attempts else None
        return self.state is TaskState.NEEDS_PERSON and last == "asked"

    def stand_of(self, attempt: Attempt) -> str:
        """How an attempt ended; while it has not, how its task stands: it runs no longer where that waits."""
        return attempt.ending or self.state.value
