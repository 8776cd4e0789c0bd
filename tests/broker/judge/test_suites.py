"""Tests that are deleted or switched off are found in every language; what is moved or renamed is no such thing."""

from __future__ import annotations

import time

import pytest

from broker.config.policy import Policy
from broker.judge.scan.content import Content
from broker.judge.scan.scanner import Scanner


@pytest.fixture(scope="module")
def scanner():
    return Scanner()


def findings(scanner, *contents, **policy):
    scan = scanner.begin(Policy(**{"secrets": "allow", "hidden_text": "allow", **policy}))
    return [found for content in contents for found in scan.look(content)] + list(scan.close())


def rules(scanner, *contents, **policy):
    return {finding.rule for finding in findings(scanner, *contents, **policy)}


PYTHON = b"import pytest\n\n\ndef test_a():\n    assert f() == 1\n\n\nasync def test_b():\n    assert g() == 2\n"
TWO = {
    "tests/test_x.py": (PYTHON, b"import pytest\n\n\ndef test_a():\n    assert f() == 1\n"),
    "src/x.test.ts": (b"test('a', () => { ok(1) })\nit(\"b\", () => { ok(2) })\n", b"test('a', () => { ok(1) })\n"),
    "x_test.go": (
        b"func TestA(t *testing.T) {\n\tok(t)\n}\n\nfunc TestB(t *testing.T) {\n\tno(t)\n}\n",
        b"func TestA(t *testing.T) {\n\tok(t)\n}\n",
    ),
    "src/test/java/XTest.java": (
        b"class XTest {\n@Test\npublic void a() { ok(1); }\n@Test void b() { ok(2); }\n}\n",
        b"class XTest {\n@Test\npublic void a() { ok(1); }\n}\n",
    ),
    "spec/x_spec.rb": (b"it 'a' do\n ok\nend\nit \"b\" do\n no\nend\n", b"it 'a' do\n ok\nend\n"),
    "src/lib.rs": (
        b"#[test]\nfn a() { ok(1) }\n#[tokio::test]\nasync fn b() { ok(2) }\n",
        b"#[test]\nfn a() { ok(1) }\n",
    ),
    "x_test.cc": (b"TEST(X, A) {\n ok(1);\n}\nTEST_F(X, B) {\n ok(2);\n}\n", b"TEST(X, A) {\n ok(1);\n}\n"),
}


@pytest.mark.parametrize("path", TWO)
def test_a_test_that_goes_from_a_kept_file_is_found(scanner, path):
    old, new = TWO[path]
    found = [finding for finding in findings(scanner, Content(path, old, new)) if finding.rule == "tests-deleted"]
    assert [finding.path for finding in found] == [path]
    assert found[0].severity == "warn"


@pytest.mark.parametrize("path", TWO)
def test_a_test_that_only_changes_or_comes_is_not(scanner, path):
    old, new = TWO[path]
    assert rules(scanner, Content(path, new, old)) == set()
    assert rules(scanner, Content(path, old, old.replace(b"1", b"11"))) == set()


@pytest.mark.parametrize("path", TWO)
def test_a_test_file_that_goes_is_found_unless_it_moved(scanner, path):
    old, _new = TWO[path]
    assert rules(scanner, Content(path, old, None)) == {"tests-deleted"}
    elsewhere = path.replace("x", "y").replace("X", "Y").replace("lib", "other")
    assert rules(scanner, Content(path, old, None), Content(elsewhere, b"", old)) == set()


def test_a_test_that_is_commented_out_or_emptied_of_its_name_is_found(scanner):
    commented = PYTHON.replace(b"async def test_b", b"# async def test_b")
    assert rules(scanner, Content("test_x.py", PYTHON, commented)) == {"tests-deleted"}
    disguised = PYTHON.replace(b"test_b", b"helper").replace(b"g()", b"h()")
    assert rules(scanner, Content("test_x.py", PYTHON, disguised)) == {"tests-deleted"}


def test_a_renamed_test_with_its_body_is_not_deleted(scanner):
    assert rules(scanner, Content("test_x.py", PYTHON, PYTHON.replace(b"test_b", b"test_better"))) == set()


def test_a_test_file_without_named_tests_is_told_when_it_goes(scanner):
    assert rules(scanner, Content("tests/data_check.py", b"assert load() == 3\n", None)) == {"tests-deleted"}


SKIPS = {
    "test_a.py": [
        "@pytest.mark.skip", '@pytest.mark.skipif(True, reason="x")', "@pytest.mark.xfail", "@unittest.skip('x')",
        "pytestmark = mark.skip", "    pytest.skip('later')", "    self.skipTest('x')", "raise SkipTest",
        "__test__ = False",
        "@skipUnless(False, '')", " " * 3000 + "pytest.skip()", "x = 1;" + " " * 200 + "pytest.skip('no')",
        "@expectedFailure", "collect_ignore = ['test_b.py']",
    ],
    "conftest.py": ["collect_ignore_glob = ['*']", "    item.add_marker(pytest.mark.skip)"],
    "a.spec.js": ["it.skip('x', f)", "describe.only('x', f)", "xit('x', f)", "  test.todo('x')", "fdescribe('x', f)",
                  "test.concurrent.skip('x')", "this.skip()"],
    "a_test.go": ["\tt.Skip()", '\tt.Skipf("x")', "\tb.SkipNow()", "//go:build never"],
    "ATest.java": ["@Ignore", '@Disabled("x")', "    @org.junit.Ignore", "  assumeTrue(false);",
                   "@DisabledOnOs(LINUX)"],
    "a_spec.rb": ["  xit 'a' do", "  pending 'x'", "  skip", "  it 'a', skip: true do", "  it 'b', :skip do"],
    "src/lib.rs": ["#[ignore]", '#[ignore = "slow"]', "#[cfg_attr(unix, ignore)]"],
    "a_test.cpp": ["  GTEST_SKIP();", "TEST(X, DISABLED_a) {", '  SKIP("x");', "#if 0"],
}  # fmt: skip


@pytest.mark.parametrize(("path", "line"), [(path, line) for path, lines in SKIPS.items() for line in lines])
def test_a_new_skip_is_found(scanner, path, line):
    old = b"first\nlast\n"
    assert rules(scanner, Content(path, old, f"first\n{line}\nlast\n".encode())) == {"tests-skipped"}


@pytest.mark.parametrize(("path", "line"), [(path, lines[0]) for path, lines in SKIPS.items()])
def test_a_skip_that_was_there_or_moved_is_not_new(scanner, path, line):
    held = f"{line}\nx\n".encode()
    assert rules(scanner, Content(path, held, held + b"more\n")) == set()
    other = path.replace("a", "b", 1) if "conftest" not in path and "lib" not in path else f"tests/{path}"
    assert rules(scanner, Content(path, held, b"x\n"), Content(other, b"", f"{line}\n".encode())) == set()


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("src/list.js", "items.skip(3)"), ("src/query.ts", "query.skip(10).limit(5)"), ("main.go", "r.Skip(2)"),
        ("src/a.py", "skip = rows[1:]"), ("a.md", "pytest.skip()"), ("src/skip.rb", "skip_before_action :x"),
        ("test_a.py", "def test_skips_blank_lines():"), ("src/io.cpp", "in.skip(4);"),
    ],
)  # fmt: skip
def test_ordinary_code_is_no_skip(scanner, path, line):
    assert "tests-skipped" not in rules(scanner, Content(path, b"", f"{line}\n".encode()))


def test_the_operator_chooses_the_weight(scanner):
    gone = Content("test_x.py", PYTHON, None)
    assert {finding.severity for finding in findings(scanner, gone, tests_deleted="block")} == {"block"}
    assert {finding.severity for finding in findings(scanner, gone, tests_deleted="ask")} == {"ask"}
    assert findings(scanner, gone, tests_deleted="allow") == []


@pytest.mark.parametrize("part", ["it.", "@a.", "#[cfg_attr(", "def test_", " ", "(", "assume", "it('", "[!", "\t \t"])
@pytest.mark.parametrize("path", ["test_a.py", "a.test.js", "ATest.java", "a_spec.rb", "lib.rs", "a_test.cc"])
def test_no_line_makes_it_slow(scanner, path, part):
    data = (part * 40_000)[: 256 * 1024].encode()
    began = time.process_time()
    rules(scanner, Content(path, b"", data), Content(path, data, b""))
    assert time.process_time() - began < 1.5


def test_many_lines_do_not_make_it_slow_and_findings_are_bounded(scanner):
    data = b"".join(b"def test_%d():\n    pytest.skip()\n" % n for n in range(6000))
    began = time.process_time()
    found = findings(
        scanner, Content("test_a.py", b"", data), Content("test_b.py", data.replace(b"test_", b"test_q"), None)
    )
    assert time.process_time() - began < 3
    assert len(found) < 100
