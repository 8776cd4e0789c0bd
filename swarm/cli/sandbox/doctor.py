"""`swarm sandbox doctor`: which backends this machine can use, what each proved, and what to mend."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

import typer

from sandbox.errors import SandboxError
from sandbox.factory import BACKENDS
from sandbox.owner import owner_of
from sandbox.probe import ClaimsError
from sandbox.rules.claims import MENDS
from sandbox.types import SelfTest
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.cli.judge import Finding
from swarm.cli.sandbox import machine
from swarm.cli.sandbox.ending import in_order
from swarm.cli.sandbox.given import BackendOption, config_of, settings_of
from swarm.config import Settings


class Examined(NamedTuple):
    """One backend: what it proved or did not, or why it is not here."""

    name: str
    test: SelfTest | None
    absent: str = ""

    @property
    def usable(self) -> bool:
        """Whether every claim was proved."""
        return self.test is not None and not self.test.failed


def doctor(
    ctx: typer.Context, backend: BackendOption = None, config: ConfigOption = None, json: JsonOption = False
) -> None:
    """Start a small sandbox on each backend, attack it from inside, and say what holds; some seconds each.

    Exit code 1 when no backend can be used.
    """
    settings = settings_of(ctx, config)
    names = (backend.value,) if backend else tuple(BACKENDS)
    found = [door.run(in_order(_examined(settings, name))) for name in names]
    kernel = machine.kernel()
    if json:
        screen.document(
            {"machine": [one.model_dump() for one in kernel], "backends": [_document(one) for one in found]}
        )
    else:
        for line in kernel:
            _line(line)
        for one in found:
            _print(one)
        _closing(found)
    raise typer.Exit(Code.OK if any(one.usable for one in found) else Code.FAULT)


async def _examined(settings: Settings, name: str) -> Examined:
    made = BACKENDS[name](
        config_of(settings, None).model_copy(update={"backend": name}), owner_of(settings.daemon.state), {}
    )
    try:
        return Examined(name, await made.self_test())
    except ClaimsError as error:
        return Examined(name, error.test)
    except SandboxError as error:
        return Examined(name, None, str(error))
    finally:
        await made.close()


def _document(one: Examined) -> dict[str, object]:
    test = one.test.model_dump(mode="json") if one.test else None
    return {"name": one.name, "usable": one.usable, "absent": one.absent, "test": test}


def _print(one: Examined) -> None:
    if one.test is None:
        what, _, mend = one.absent.partition("; mend: ")
        _line(Finding(subject=one.name, level="warn", text=f"not here: {what}", mend=mend))
        return
    test = one.test
    level, many = ("ok", "all") if not test.failed else ("fail", "not all")
    text = f"{test.version}: {many} claims hold, {len(test.proved)} proved from inside"
    _line(Finding(subject=one.name, level="fail" if level == "fail" else "ok", text=text))
    for key, value in sorted(test.detail.items()):
        screen.say(f"        {key}: {value}")
    for claim in test.failed:
        _line(Finding(subject=f"  {claim}", level="fail", text="does not hold", mend=MENDS.get(claim, "")))
    screen.say(
        textwrap.fill("proved: " + ", ".join(test.proved), 100, initial_indent=" " * 8, subsequent_indent=" " * 16)
    )


def _line(finding: Finding) -> None:
    screen.say(f"{finding.level:<5} {finding.subject}: {finding.text}", screen.STYLES[finding.level])
    if finding.mend:
        screen.say(f"      mend: {finding.mend}")


def _closing(found: list[Examined]) -> None:
    usable = [one.name for one in found if one.usable]
    if usable:
        screen.hint(f"usable here: {', '.join(usable)}; try one with: swarm sandbox shell --backend {usable[0]} .")
    else:
        other = [name for name in BACKENDS if name not in {one.name for one in found}]
        if other:
            screen.hint(f"not usable here; {', '.join(other)} was not looked at: swarm sandbox doctor looks at all")
        else:
            screen.hint("no backend can be used here, so no task can run: mend one of the above")
