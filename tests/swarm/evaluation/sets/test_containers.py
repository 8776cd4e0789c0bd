"""Tasks that were made for containers: Harbor's and Terminal-Bench's folders."""

import pytest

from swarm.errors import EvaluationError
from swarm.evaluation.sets import containers
from swarm.evaluation.sets.given import Given
from swarm.evaluation.sets.harbor import Harbor
from swarm.evaluation.sets.terminal_bench import TerminalBench

DOCKERFILE = "FROM x\nWORKDIR /app\nCOPY data /app/data\nCOPY main.py .\nCOPY --from=b /x /app/x\nCOPY etc.conf /etc/\n"
FETCHING = "curl -LsSf https://x.invalid/install.sh | sh\nuv run pytest $TEST_DIR/test_outputs.py -rA\n"


def put(top, files):
    for path, content in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(content)
    return top


def harbor(top, **more):
    files = {
        "instruction.md": "Make /app/out.txt.",
        "task.toml": '[metadata]\ndifficulty = "easy"\n[verifier]\ntimeout_sec = 90\n[agent]\ntimeout_sec = 100\n',
        "environment/Dockerfile": DOCKERFILE,
        "environment/data/a.txt": "a",
        "environment/main.py": "m",
        "environment/etc.conf": "e",
        "tests/test.sh": "cat /app/out.txt && echo 1 > /logs/verifier/reward.txt; ls /apple /tests/x",
        "solution/solve.sh": "echo x > /app/out.txt",
    }
    put(top / "hello", {path.replace("__", "/"): text for path, text in (files | more).items() if text is not None})
    return Harbor(top, Given())


def test_the_files_that_go_into_the_working_folder_are_the_repository(tmp_path):
    (case,) = harbor(tmp_path).cases()
    assert {file.path: file.content for file in case.files} == {"data/a.txt": b"a", "main.py": b"m"}
    assert case.image == str(tmp_path / "hello/environment/Dockerfile")
    assert (case.hidden.seconds, case.allowance.wall, case.labels) == (90, 100, {"difficulty": "easy"})


def test_paths_are_rewritten_where_it_is_judged_and_told_in_the_statement(tmp_path):
    (case,) = harbor(tmp_path).cases()
    (script,) = (file.content.decode() for file in case.hidden.files)
    assert "cat /work/out.txt" in script
    assert "> /work/.judge/logs/verifier/reward.txt" in script
    assert "/apple /work/.judge/tests/x" in script
    assert case.solution.script == "echo x > /work/out.txt"
    assert case.statement.startswith("Make /app/out.txt.")
    assert "/work" in case.statement


def test_a_reward_that_the_agent_left_is_taken_away_before_it_is_judged(tmp_path):
    (case,) = harbor(tmp_path).cases()
    assert case.hidden.removed == (".judge",)


def test_tests_that_fetch_pytest_are_run_with_the_one_that_is_there(tmp_path):
    (case,) = harbor(tmp_path, **{"tests/test.sh": FETCHING, "tests/test_outputs.py": "t"}).cases()
    assert case.hidden.command == "python3 -m pytest -rA .judge/tests/test_outputs.py"
    assert not case.blocked


@pytest.mark.parametrize(
    "line",
    [
        "apt-get install -y curl",
        "curl https://x",
        "pip install pytest",
        "uvx pytest",
        "uv add x",
        "npm ci",
        "git clone x",
    ],
)
def test_tests_that_fetch_anything_else_are_told_and_not_failed(tmp_path, line):
    (case,) = harbor(tmp_path, **{"tests/test.sh": f"set -e\n{line}\n"}).cases()
    assert "network" in case.blocked


def test_words_of_fetching_in_comments_and_names_are_no_fetching():
    assert not containers.needs_network("# apt-get install x\necho recurl; ./mycurl.sh; pip --version")


def test_several_containers_are_told(tmp_path):
    compose = "services:\n  main:\n    build: .\n  db:\n    image: postgres\n"
    (case,) = harbor(tmp_path, **{"environment/docker-compose.yaml": compose}).cases()
    assert "several containers" in case.blocked


@pytest.mark.parametrize("source", ["../../secret", "/../../secret", "link/x"])
def test_a_dockerfile_that_copies_from_outside_is_refused(tmp_path, source):
    (tmp_path / "secret").write_text("s")
    set_ = harbor(tmp_path, **{"environment/Dockerfile": f"FROM x\nWORKDIR /app\nCOPY {source} /app/\n"})
    (tmp_path / "hello/environment/link").symlink_to(tmp_path)
    with pytest.raises(EvaluationError, match="Dockerfile: names"):
        list(set_.cases())


def test_a_link_among_the_tests_is_refused(tmp_path):
    set_ = harbor(tmp_path)
    (tmp_path / "hello/tests/passwd").symlink_to("/etc/passwd")
    with pytest.raises(EvaluationError, match="is a link"):
        list(set_.cases())


@pytest.mark.parametrize("part", ["tests", "environment", "solution"])
def test_a_folder_of_a_task_that_is_a_link_is_refused(tmp_path, part):
    set_ = harbor(tmp_path)
    (tmp_path / "hello" / part).rename(tmp_path / "elsewhere")
    (tmp_path / "hello" / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EvaluationError, match="link"):
        list(set_.cases())


def test_a_task_that_is_a_link_is_refused(tmp_path):
    set_ = harbor(tmp_path)
    (tmp_path / "other").symlink_to(tmp_path / "hello")
    with pytest.raises(EvaluationError, match="link"):
        list(set_.cases())


def test_a_line_without_end_is_looked_at_in_no_time():
    assert not containers.needs_network("apt " * 500_000)


@pytest.mark.parametrize(
    ("path", "content", "word"),
    [
        ("task.toml", "a =", "is no TOML"),
        ("task.toml", "verifier = 3\n", "verifier is no table"),
        ("task.toml", "[verifier]\ntimeout_sec = 'x'\n", "hidden.seconds"),
        ("instruction.md", None, "instruction.md"),
        ("tests/test.sh", None, "test.sh"),
    ],
)
def test_a_harbor_task_that_lacks_something_is_told_with_its_place(tmp_path, path, content, word):
    with pytest.raises(EvaluationError, match=word):
        list(harbor(tmp_path, **{path: content}).cases())


def terminal_bench(top, **more):
    files = {
        "task.yaml": "instruction: |-\n  Fix /app/main.py\ndifficulty: easy\nmax_test_timeout_sec: 30\n",
        "Dockerfile": DOCKERFILE,
        "docker-compose.yaml": "services:\n  client:\n    build: .\n",
        "data/a.txt": "a",
        "main.py": "m",
        "run-tests.sh": FETCHING,
        "tests/test_outputs.py": "open('/app/main.py')",
        "solution.yaml": "- command: touch /app/x\n  block: true\n- command: touch y\n",
    }
    put(top / "fix", {path: text for path, text in (files | more).items() if text is not None})
    return TerminalBench(top, Given(images={"fix": "mine:1"}))


def test_a_terminal_bench_task_is_read(tmp_path):
    (case,) = terminal_bench(tmp_path).cases()
    assert case.image == "mine:1"
    assert case.hidden.seconds == 30
    assert case.allowance.wall == 360
    assert case.solution.script == "touch /work/x\ntouch y"
    assert {file.path for file in case.hidden.files} == {".judge/tests/test_outputs.py", ".judge/run-tests.sh"}
    assert {file.path for file in case.files} == {"data/a.txt", "main.py"}


def test_older_tasks_give_their_base_description(tmp_path):
    told = "descriptions:\n  - key: hard\n    description: no\n  - key: base\n    description: Do it.\n"
    (case,) = terminal_bench(tmp_path, **{"task.yaml": told}).cases()
    assert case.statement.startswith("Do it.")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("- a\n", "is no mapping"),
        ("a: [\n", "is no YAML"),
        ("difficulty: easy\n", "has no instruction"),
        ("instruction: !!python/object/apply:os.system ['x']\n", "is no YAML"),
        ("a: &a [x]\nb: [" + "*a, " * 21 + "]\n", "aliases"),
    ],
)
def test_a_task_yaml_that_is_broken_or_hostile_is_refused_with_its_place(tmp_path, content, word):
    with pytest.raises(EvaluationError, match=rf"task\.yaml.*{word}"):
        list(terminal_bench(tmp_path, **{"task.yaml": content}).cases())


def test_a_parser_that_there_is_not_is_told(tmp_path):
    told = "instruction: x\nparser_name: swelancer\n"
    (case,) = terminal_bench(tmp_path, **{"task.yaml": told}).cases()
    assert "swelancer" in case.blocked
