"""The report as a real browser shows it: its facts stand there, nothing hostile runs, and nothing is asked for."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from swarm.evaluation.making import make
from swarm.evaluation.report import PAGE
from tests.swarm.evaluation.conftest import Evaluate, case
from tests.swarm.evaluation.test_page import Page, hostile_run

pytestmark = pytest.mark.browser
BROWSERS = ("chromium-headless-shell", "chromium")


def browsed(page: Path, log: Path, *flags: str) -> str:
    """What the page is in a browser once it has loaded. Every request that it makes is written to ``log``."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        if os.environ.get("AGENT_SWARM_NO_SKIP"):
            pytest.fail("there is no browser: apt-get install chromium-headless-shell")
        pytest.skip("there is no browser: apt-get install chromium-headless-shell")
    home = log.parent / "home"
    home.mkdir(exist_ok=True)
    argv = [
        browser, "--no-sandbox", "--disable-gpu", "--disable-background-networking", f"--user-data-dir={home}",
        f"--log-net-log={log}", "--net-log-capture-mode=Everything", "--virtual-time-budget=5000", *flags,
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(
        argv, capture_output=True, timeout=90, check=True, env={"HOME": str(home), "PATH": "/usr/bin:/bin"}
    )
    return done.stdout.decode()


def asked_for(log: Path) -> set[str]:
    """Every address that the browser made a request to, whatever came of it."""
    found = re.findall(r'"url":\s*"([a-z]+://[^"]*)"', log.read_text(errors="replace"))
    return {url for url in found if not url.startswith(("file:", "chrome:", "data:", "about:", "chrome-extension:"))}


def test_a_hostile_run_is_shown_as_words_and_reaches_nothing(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path / "run")
    make(folder)
    log = tmp_path / "net.json"
    page = Page(browsed(folder.path / PAGE, log))
    assert "script" not in page.tags
    assert page.tags.count("svg") == 4
    assert "70" in page.text
    assert not asked_for(log)


def test_a_page_that_does_ask_for_something_is_caught_by_this_very_test(tmp_path: Path) -> None:
    page, log = tmp_path / "page.html", tmp_path / "net.json"
    page.write_text('<!doctype html><img src="http://127.0.0.1:9/evil.png"><p>x</p>')
    browsed(page, log)
    assert asked_for(log) == {"http://127.0.0.1:9/evil.png"}


@pytest.mark.slow
async def test_the_facts_of_a_run_stand_in_the_page(evaluate: Evaluate, tmp_path: Path) -> None:
    _, folder, _ = await evaluate([case("a"), case("<b>b</b>")], "reference", "nothing")
    report = make(folder)
    log = tmp_path / "net.json"
    page = Page(await asyncio.to_thread(browsed, folder.path / PAGE, log))
    assert "2 of 2" in page.text
    assert "0 of 2" in page.text
    assert "<b>b</b>" in page.text
    assert report.comparisons[0].words in page.text
    links = {value for name, value in page.attributes if name == "href"}
    assert {f"#{row.key}" for row in report.tries} <= links
    places = {value for name, value in page.attributes if name == "id"}
    assert {row.key for row in report.tries} <= places
    for link in links - {None}:
        assert str(link).startswith("#") or (folder.path / str(link)).is_file()
    assert not asked_for(log)
    assert json.loads((folder.path / "report.json").read_bytes())["scores"][0]["solved"] == 2
