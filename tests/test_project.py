"""The project as a newcomer and an operator meet it: files that name each other, and a command that starts at once."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from infra.settings import Settings
from topics.catalogue import SPECS
from workers.app import WORKERS
from workers.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
PACKAGES = ("topics", "flows", "infra", "workers")
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
HEAVY = ("openai", "langchain_core", "langchain_openai", "langgraph", "onnxruntime", "numpy")

# The command line


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_begins_what_the_command_says_of_itself(name):
    place = COMMANDS[name]
    found = getattr(import_module(place.module), place.attribute)
    said = found.info.help if isinstance(found, typer.Typer) else found.__doc__
    assert said.startswith(place.help)


def test_commands_that_need_no_model_do_not_wait_for_its_client():
    """Seconds of imports, at every call."""
    light = ["topics", "publish", "ask", "approvals", "dead", "asyncapi"]
    loaded = (
        f"import sys; from workers.cli.main import COMMANDS; [COMMANDS[name].load(name) for name in {light}]; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(HEAVY) & set(done.stdout.split()) == set()


def test_a_worker_s_process_loads_nothing_that_can_sign():
    """Case 35: what can sign could say yes by itself."""
    loaded = "import sys; from workers.cli.main import COMMANDS; COMMANDS['worker'].load('worker'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "workers.app" in modules
    assert "infra.identity.signatures" in modules
    assert "infra.identity.signing" not in modules


# Dependencies


def declared(*lists: str) -> set[str]:
    groups = {"project": PROJECT["project"]["dependencies"], **PROJECT["dependency-groups"]}
    return {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for name in lists for line in groups[name]}


def imported(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name.split(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield path, node.module.split(".")[0]


def undeclared(folder: Path, allowed: set[str]) -> set[tuple[str, str]]:
    distributions = metadata.packages_distributions()
    ours = {*PACKAGES, "tests", "bench", *sys.stdlib_module_names}
    return {
        (str(path.relative_to(ROOT)), module)
        for path, module in imported(folder)
        if module not in ours and not {name.lower().replace("_", "-") for name in distributions.get(module, [module])} & allowed
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_the_image_has_what_its_code_imports_and_the_embedded_stack_alone_needs_more(package):
    missing = undeclared(ROOT / package, declared("project"))
    beside = {one for one in missing if not one[0].startswith("infra/local/")}
    assert beside == set()
    assert undeclared(ROOT / package, declared("project", "local")) == set()


def test_tests_and_benches_declare_what_they_import():
    brought_along = {"referencing", "ormsgpack", "pyyaml"}  # by jsonschema, langgraph-checkpoint and langchain-core
    rivals = {"faststream_concurrent_aiokafka", "prosody"}  # modules of the group `rivals`, which need not be installed
    allowed = declared("project", "local", "dev", "rivals") | brought_along | rivals
    assert undeclared(ROOT / "tests", allowed) | undeclared(ROOT / "bench", allowed) == set()


# What the papers say


def test_every_file_that_the_papers_name_is_there():
    named = {
        (paper.name, path)
        for paper in [ROOT / "README.md", *DECISIONS]
        for path in re.findall(r"`((?:topics|flows|infra|workers|tests|bench|docs)/[\w./-]+)`", paper.read_text())
    }
    assert len(named) > 40
    assert {one for one in named if not (ROOT / one[1]).exists()} == set()


def test_each_promise_names_a_test_that_guards_it():
    rows = re.findall(r"^\| (P\d+) \| .*$", README, re.MULTILINE)
    assert rows == [f"P{number}" for number in range(1, 13)]
    assert all("`tests/" in line for line in README.splitlines() if re.match(r"\| P\d+ ", line))


def test_settings_that_the_papers_name_exist():
    known = {f"SLUICE_{name.upper()}" for name in Settings.model_fields}
    texts = [
        README,
        (ROOT / "docker-compose.yml").read_text(),
        (ROOT / "Dockerfile").read_text(),
        *(one.read_text() for one in DECISIONS),
    ]
    named = {name for text in texts for name in re.findall(r"SLUICE_[A-Z_]*[A-Z]", text)}
    assert named - known == set()


def test_the_readme_names_every_topic_with_its_key_field():
    table = README[README.index("| topic | who writes") :].split("\n\n")[0]
    assert [spec.name for spec in SPECS if f"`{spec.name}`" not in table] == []
    for spec in SPECS:
        if spec.direction == "in":
            who = "you" if {"upstream", "approver"} & set(spec.writers) else "Sluice"
            assert re.search(
                rf"^\| `{re.escape(spec.name)}` \| {who} \| tenant/{(spec.key_field or '').removesuffix('_id')} \|",
                table,
                re.MULTILINE,
            )


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_why_what_with_which_consequences_and_until_when(path):
    text = path.read_text()
    assert text.startswith(f"# {path.name[:4]} ")
    assert [part for part in ("**Context.**", "**Decision.**", "**Consequences.**", "**Revisit when**") if part not in text] == []


def test_decisions_are_numbered_without_gaps():
    assert [path.name[:4] for path in DECISIONS] == [f"{number:04d}" for number in range(1, len(DECISIONS) + 1)]


def test_the_version_is_the_same_everywhere():
    version = PROJECT["project"]["version"]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
    assert COMPOSE["services"]["query"]["image"] == f"sluice:{version}"
    assert metadata.version("sluice") == version


# Image and compose file: no engine runs here, so what can be read is checked


def test_the_image_takes_production_dependencies_only_and_runs_as_nobody_special():
    dockerfile = (ROOT / "Dockerfile").read_text()
    syncs = re.findall(r"uv sync (.*)", dockerfile)
    assert syncs
    assert all("--no-default-groups" in sync and "--locked" in sync and "--group" not in sync for sync in syncs)
    assert re.findall(r"^USER (\d+)", dockerfile, re.MULTILINE) not in ([], ["0"])
    assert 'ENTRYPOINT ["sluice"]' in dockerfile
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"uv==([\d.]+)", dockerfile) == re.findall(r"^UV_VERSION := (.*)$", makefile, re.MULTILINE)


def test_the_image_gets_every_file_it_is_built_from_and_no_data():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    wanted = [
        path
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        for path in line.split()
    ]
    assert {*PACKAGES, "pyproject.toml", "uv.lock"} <= set(wanted)
    assert [path for path in wanted if f"!{path}" not in ignored or not (ROOT / path).exists()] == []
    assert "infra/local/data/*" in ignored
    assert "!infra/local/data/*.py" in ignored


def test_the_compose_file_runs_every_worker_after_its_topics_are_there():
    services: dict[str, Any] = COMPOSE["services"]
    assert services["topics"]["command"] == ["topics", "apply"]
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    for name in WORKERS:
        assert services[name]["command"] == ["worker", name]
        assert services[name]["depends_on"]["topics"] == {"condition": "service_completed_successfully"}
        assert services[name]["depends_on"]["redis"] == {"condition": "service_healthy"}
    waited_for = {
        one
        for service in services.values()
        for one, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }
    assert [one for one in waited_for if "test" not in services[one]["healthcheck"]] == []


def test_the_composed_redis_is_one_that_workers_accept():
    command = COMPOSE["services"]["redis"]["command"]
    settings = dict(zip(command[1::2], command[2::2], strict=True))
    assert settings == {"--appendonly": "yes", "--appendfsync": "always", "--maxmemory-policy": "noeviction"}
    assert COMPOSE["services"]["redis"]["volumes"] == ["redis-data:/data"]


def test_the_composed_workers_stop_later_than_they_drain():
    grace_s = int(COMPOSE["services"]["query"]["stop_grace_period"].removesuffix("s"))
    assert grace_s > Settings.model_fields["drain_s"].default


# The Makefile


@pytest.mark.skipif(shutil.which("make") is None, reason="no `make` on the PATH")
@pytest.mark.parametrize("target", ["setup", "demo", "test", "check", "bench"])
def test_an_old_python_is_refused_in_one_sentence_before_anything_is_made(target, tmp_path):
    """LangGraph's interrupts break on 3.10."""
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.9 && exit\nexit 1\n')
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(["make", target, f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    sentences = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(sentences) == 1
    assert "needs Python 3.11" in sentences[0]
    assert "Python 3.10.9" in sentences[0]
    assert not (tmp_path / ".venv").exists()
