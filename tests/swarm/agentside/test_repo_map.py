"""The repository map: what is read from lines, what is ranked first, and that it fits its budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swarm.tools.mapping.definitions import Definition, Source, language_of
from swarm.tools.mapping.drawing import draw
from swarm.tools.mapping.outline import mentions, outline
from swarm.tools.mapping.ranking import rank


def source(path: str, defines: str = "", **said: int) -> Source:
    names = enumerate(defines.split(), 1)
    return Source(path, tuple(Definition(name, at * 10, at * 10 + 5, f"def {name}():") for at, name in names), said)


REPOSITORY = [
    source("core.py", "make_widget helper _private"),
    source("app.py", "main_loop", make_widget=5, other_thing=1),
    source("web.py", "serve_page", make_widget=2, main_loop=1),
    source("odd.py", "other_thing"),
    source("tests/test_core.py", "test_one test_two", make_widget=9, odd_thing=3),
]


def test_what_others_mention_most_comes_first() -> None:
    ranks, scores = rank(REPOSITORY)
    assert max(ranks, key=lambda path: ranks[path]) == "core.py"
    best = max(scores, key=lambda key: scores[key])
    assert (best[0], best[1].name) == ("core.py", "make_widget")
    assert abs(sum(ranks.values()) - 1) < 1e-6


def test_words_that_matter_now_pull_their_files_up() -> None:
    assert draw(REPOSITORY, *rank(REPOSITORY, "why does serve_page fail?"), 60).startswith("web.py:")
    assert draw(REPOSITORY, *rank(REPOSITORY, "look at odd.py"), 60).startswith("odd.py:")


def test_a_map_is_the_same_whatever_order_files_come_in() -> None:
    again = list(reversed(REPOSITORY))
    assert draw(REPOSITORY, *rank(REPOSITORY), 2000) == draw(again, *rank(again), 2000)


def test_a_definition_is_shown_below_what_it_lies_in() -> None:
    outer = Definition("Outer", 1, 50, "class Outer:")
    inner = Definition("method", 10, 20, "def method(self):")
    one = Source("a.py", (outer, inner, Definition("after", 60, 70, "def after():")))
    text = draw([one], {"a.py": 1.0}, {("a.py", inner): 1.0}, 500)
    assert text == "a.py:\n    1  class Outer:\n   10    def method(self):"


SOURCES = st.lists(
    st.builds(
        source,
        st.sampled_from(["a.py", "b/c.py", "tests/d.py", "e.go"]),
        st.lists(st.sampled_from(["make_it", "Thing", "run", "_x"]), max_size=4, unique=True).map(" ".join),
        make_it=st.integers(1, 9),
    ),
    max_size=4,
    unique_by=lambda one: one.path,
)


@given(SOURCES, st.integers(0, 300), st.text(max_size=20))
def test_any_map_fits_its_budget(sources, budget, about) -> None:
    assert len(draw(sources, *rank(sources, about), budget)) <= budget


def test_lines_of_many_languages_are_outlined() -> None:
    text = """\
class Basket:
    def total(self):
        return 1

export async function load(url) {
pub fn parse(text: &str) -> Tree {
func (s *Server) Listen(port int) error {
static int count_words(const char *text) {
interface Shape {
deploy() {
    if (ready) {
    return call(1)
"""
    found = outline(text, 100)
    names = [one.name for one in found]
    assert names == ["Basket", "total", "load", "parse", "Listen", "count_words", "Shape", "deploy"]
    assert (found[0].first, found[0].last) == (1, 4)


@given(st.text(alphabet="def class(){}:;<>*& \n\tab", max_size=400))
def test_any_text_is_outlined_within_bounds(text: str) -> None:
    found = outline(text * 5, 7)
    assert len(found) <= 7
    assert all(1 <= one.first <= one.last <= text.count("\n") * 5 + 1 for one in found)


def test_mentions_are_counted_within_bounds() -> None:
    assert mentions("Basket.of(load(1), load(2)) if x", 10) == {"Basket": 1, "load": 2}
    assert len(mentions(" ".join(f"name_{n}()" for n in range(100)), 10)) == 10


def test_languages_are_known_by_the_ends_of_names() -> None:
    assert language_of("a/b.PY") == "python"
    assert language_of("x.tsx") == "tsx"
    assert language_of("Makefile") is None
    assert language_of("a.py/b") is None
