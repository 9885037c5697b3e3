"""``edenmem cold`` as cron and its operator have it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from edenmem.models.formation import FormationStatus
from edenmem.models.ids import utc_now
from edenmem.store.sqlite import SqliteStore
from tests.cli.conftest import Cli
from tests.support.builders import make_agent, make_formation, make_messages, make_session
from tests.support.fake_openai import KEY, FakeOpenAI, Reply, failing
from tests.support.formations import Steps

pytestmark = pytest.mark.slow

EVE, ADAM = make_agent("eve"), make_agent("adam")
ONE = ("--set", "cold.concurrency=1")


class Cold:
    """A store with quiet sessions, an endpoint, and edenmem as a process."""

    def __init__(self, folder: Path, endpoint: FakeOpenAI) -> None:
        self.store = SqliteStore(folder / "memory.db")
        self.store.database.initialize()
        for agent in (EVE, ADAM):
            self.store.host.add_agent(agent)
        self.endpoint = endpoint
        self.cli = Cli(f"sqlite:///{folder}/memory.db", folder)
        self.env = {
            "EDENMEM_LLM_BASE_URL": endpoint.url,
            "EDENMEM_LLM_API_KEY": KEY,
            "EDENMEM_LLM_FAST_MODEL": "fast-1",
            "EDENMEM_LLM_SLOW_MODEL": "slow-1",
            "EDENMEM_LLM_PREMIUM_MODEL": "premium-1",
            "EDENMEM_LLM_RETRIES": "0",
            "EDENMEM_COLD_GRACE_SECONDS": "0",
        }

    def add(self, name: str, messages: int = 4, *, agents: Any = (EVE,), days: int = 1) -> None:
        """A session of so many days ago."""
        session = make_session(agents, name=name, last_activity=None)
        self.store.host.put_session(session)
        start = utc_now() - timedelta(days=days)
        self.store.host.add_messages(session.id, make_messages(session, messages, start=start))

    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None) -> Any:
        return self.cli("cold", *arguments, env={**self.env, **(env or {})})

    def report(self, *arguments: str, code: int = 0) -> Any:
        """The report of a run, which must end with this code."""
        result = self("run", *arguments, "--format", "json")
        assert result.code == code, result
        return result.data

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A run that goes on."""
        return subprocess.Popen(
            [sys.executable, "-m", "edenmem", "cold", "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.cli.cwd,
            env=self.cli.environment(80, self.env),
        )

    def check(self) -> None:
        """Every message of every session is in exactly one applied formation of each agent."""
        for session in self.store.host.sessions():
            messages = sorted(message.id for message in self.store.host.messages(session.id))
            for agent_id in session.agents:
                formations = self.store.formations.list_formations(
                    session_id=session.id,
                    agent_id=agent_id,
                    statuses=[FormationStatus.APPLIED],
                )
                assert sorted(m for f in formations for m in f.message_ids) == messages


def answer(body: dict[str, Any]) -> str:
    """The shortest valid answer to any task."""
    schema = body["response_format"]["json_schema"]["schema"]
    return json.dumps(_shortest(schema, schema.get("$defs", {})))


def _shortest(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _shortest(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    match schema.get("type"):
        case "object":
            parts = schema["properties"].items()
            return {name: _shortest(part, definitions) for name, part in parts}
        case "array":
            return []
    return ""


@pytest.fixture
def endpoint() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(answer) as fake:
        yield fake


@pytest.fixture
def cold(tmp_path: Path, endpoint: FakeOpenAI) -> Iterator[Cold]:
    world = Cold(tmp_path, endpoint)
    yield world
    world.store.database.close()


# -- run -----------------------------------------------------------------------------------------


def test_one_report_as_one_object(cold: Cold) -> None:
    cold.add("both", agents=[EVE, ADAM])
    cold.add("short", 2)
    report = cold.report("--set", "formation.min_messages=4")
    assert isinstance(report, dict)
    assert (report["considered"], report["formed"], report["not_due"]) == (2, 2, 1)
    assert report["failed"] == []
    assert sum(each["calls"] for each in report["usage"]) == len(cold.endpoint.requests)
    assert report["tokens"] == 120 * len(cold.endpoint.requests)
    assert {each["model"] for each in report["usage"]} == {"fast-1", "slow-1"}


def test_a_person_is_told_why_nothing_was_formed(cold: Cold) -> None:
    cold.add("fresh", days=0)
    shown = cold.cli.on_terminal("cold", "run", env=cold.env).ok().out
    assert "not idle yet" in shown
    assert "cold.quiet_minutes" in shown


def test_nothing_to_do_is_exit_0_and_says_so_in_a_pipe_without_a_bar(cold: Cold) -> None:
    result = cold("run")
    assert (result.code, result.err) == (0, "")
    assert "0 sessions" in result.out
    assert "\x1b" not in result.out


def test_a_terminal_sees_what_goes_on(cold: Cold) -> None:
    cold.add("quiet")
    result = cold.cli.on_terminal("cold", "run", env=cold.env)
    assert result.code == 0
    assert "looking for idle sessions" in result.out
    assert "1 range of 4 messages" in result.out


def test_quiet_leaves_the_bar_out(cold: Cold) -> None:
    cold.add("quiet")
    assert "looking for" not in cold.cli.on_terminal("cold", "run", "--quiet", env=cold.env).out


def test_a_dry_run_lists_what_would_be_done(cold: Cold) -> None:
    cold.add("both", 6, agents=[EVE, ADAM])
    result = cold("run", "--dry-run").ok()
    same = cold.cli("form", "--idle", "--dry-run", env=cold.env).ok()
    assert same.out.splitlines()[3:] == result.out.splitlines()[3:]
    assert [line.split()[:4] for line in result.out.splitlines() if "form " in line] == [
        ["both", "eve", "form", "6"],
        ["both", "adam", "form", "6"],
    ]
    assert cold.endpoint.requests == []
    [first, _] = cold.report("--dry-run")["planned"]
    assert (first["messages"], first["work"]) == (6, "form")
    assert first["tokens"] > 0


def test_options_reach_the_run(cold: Cold) -> None:
    for days in (1, 2, 50):
        cold.add(f"s{days}", days=days)
    cold.add("his", agents=[ADAM])
    report = cold.report("--agent", "eve", "--limit", "1", "--max-age", "30d", *ONE)
    assert (report["considered"], report["formed"]) == (3, 1)
    assert [(each["rule"], each["sessions"]) for each in report["left_out"]] == [
        ("max_age", 1),
        ("limit", 1),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--max-age", "soon"),
        ("--max-cost", "much"),
        ("--max-cost", "-1"),
        ("--every", "-5m"),
    ],
    ids=lambda given: " ".join(given),
)
def test_a_wrong_option_is_named(cold: Cold, arguments: tuple[str, str]) -> None:
    cold("run", *arguments).fails(2, arguments[0])


def test_the_budget_in_tokens_ends_a_run_well(cold: Cold) -> None:
    for number in range(4):
        cold.add(f"s{number}")
    report = cold.report("--max-tokens", "300", *ONE)
    assert report["stopped_early"] == "budget"
    assert 0 < report["formed"] < 4
    assert report["failed"] == []
    assert cold.report()["formed"] == 4 - report["formed"]
    cold.check()


def test_the_budget_in_money_needs_prices(cold: Cold) -> None:
    cold.add("quiet")
    cold("run", "--max-cost", "1.5").fails(2, "llm.prices")
    priced = ("--set", 'llm.prices={"fast-1": [1, 1], "slow-1": [1, 1]}')
    report = cold.report("--max-cost", "1.5", *priced)
    assert report["formed"] == 1
    assert report["cost"] == pytest.approx(report["tokens"] / 1_000_000)


# -- trouble -------------------------------------------------------------------------------------


def test_a_provider_that_is_down_is_exit_5_and_loses_nothing(cold: Cold) -> None:
    for number in range(8):
        cold.add(f"s{number}")
    cold.endpoint.script.extend([failing(503)] * 12)
    cold("run", *ONE).fails(5, "the run stopped early")
    assert len(cold.endpoint.requests) == 3
    cold.endpoint.script.clear()
    assert cold.report()["formed"] == 8
    cold.check()


def test_a_refused_key_is_exit_5_at_once(cold: Cold) -> None:
    for number in range(4):
        cold.add(f"s{number}")
    result = cold("run", *ONE, env={"EDENMEM_LLM_API_KEY": "sk-wrong"}).fails(5)
    assert len(cold.endpoint.requests) == 1
    assert "sk-wrong" not in result.out + result.err


def test_no_database_is_exit_5_with_the_way_out(empty_cli: Cli) -> None:
    empty_cli("cold", "run").fails(5, "edenmem init")


def test_a_session_that_hangs_is_cut_at_its_time(cold: Cold) -> None:
    cold.add("slow", days=9)
    cold.endpoint.script.append(Reply(hang=True))
    report = cold.report("--set", "cold.session_timeout_seconds=2", code=1)
    assert (report["timed_out"], report["formed"]) == (["slow"], 0)
    cold.endpoint.script.clear()
    cold.add("other")
    assert cold.report()["formed"] == 2
    cold.check()


def test_a_signal_in_the_middle_then_another_run_finishes_all(cold: Cold) -> None:
    for number in range(6):
        cold.add(f"s{number}", days=20 - number, agents=[EVE, ADAM])
    cold.endpoint.script.extend([Reply(hang=True)] * 4)
    running = cold.start("--format", "json")
    assert cold.endpoint.hanging.wait(60)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    report = json.loads(out)  # is still printed, whole
    assert report["stopped_early"] == "interrupted"
    assert len(report["given_back"]) > 0
    assert "Traceback" not in err
    assert {f.status for f in cold.store.formations.list_formations()} <= {
        FormationStatus.RELEASED,
        FormationStatus.RECORDED,  # the next run applies it without a model
        FormationStatus.APPLIED,
    }
    cold.endpoint.script.clear()
    assert report["formed"] + cold.report()["formed"] == 12
    cold.check()


def test_known_failure_14_runs_on_one_host_at_once(cold: Cold) -> None:
    for number in range(8):
        cold.add(f"s{number}", 8, agents=[EVE, ADAM])
    running = [cold.start("--format", "json") for _ in range(3)]
    ended = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * 3, ended
    reports = [json.loads(out) for out, _ in ended]
    assert sum(report["formed"] for report in reports) == 16
    # Facts and reflections, once each; a request that a busy machine answers late is sent again.
    assert len({json.dumps(each) for each in cold.endpoint.requests}) == 32
    cold.check()


def test_watching_goes_on_until_it_is_told_to_stop(cold: Cold) -> None:
    cold.add("quiet")
    running = cold.start("--watch", "--every", "1s", "--format", "json")
    assert running.stdout is not None
    lines = [json.loads(running.stdout.readline()) for _ in range(3)]
    assert [line["formed"] for line in lines] == [1, 0, 0]
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode in (0, 130)


# -- status and retry ----------------------------------------------------------------------------


def fail_three_times(cold: Cold, name: str) -> None:
    """A session whose range failed for good."""
    cold.add(name)
    [session] = [each for each in cold.store.host.sessions() if each.name == name]
    formation = make_formation(
        session, list(cold.store.host.messages(session.id)), attempts=2, now=utc_now()
    )
    assert cold.store.formations.claim(formation)
    assert Steps(cold.store).fail(
        formation.id, worker="worker-1", now=utc_now(), error="the model answered nonsense"
    )


def test_status_tells_what_is_in_work_waits_and_failed(cold: Cold) -> None:
    assert cold("status").ok().out == ""
    fail_three_times(cold, "bad")
    cold.add("busy")
    [busy] = [each for each in cold.store.host.sessions() if each.name == "busy"]
    messages = list(cold.store.host.messages(busy.id))
    at_work = make_formation(busy, messages, worker="host-a:77:abcd", now=utc_now())
    assert cold.store.formations.claim(at_work)
    result = cold("status").ok()
    busy_line, bad_line = result.out.splitlines()[1:]
    assert "running" in busy_line
    assert "host-a" in busy_line
    assert "failed" in bad_line
    assert "the model" in bad_line
    assert "1 running, 1 failed" in result.err
    first, second = cold("status", "--format", "json").data
    assert (first["worker"], first["session_id"]) == ("host-a:77:abcd", busy.id)
    assert (second["attempts"], second["error"]) == (3, "the model answered nonsense")
    assert cold("status", "--agent", "adam").ok().out == ""


def test_a_failed_range_is_retried_by_hand(cold: Cold) -> None:
    fail_three_times(cold, "bad")
    fail_three_times(cold, "worse")
    assert cold.report()["formed"] == 0
    first, _ = cold("status", "--format", "json").data
    assert cold("retry", "--all", "--dry-run").ok()
    assert cold.report()["formed"] == 0
    cold("retry", "0" * 24).fails(3, "edenmem cold status")
    assert cold("retry", first["id"]).code == 0
    assert cold.report()["formed"] == 1
    assert "applied, not failed" in cold("retry", first["id"]).fails(4).out
    [result] = cold("retry", "--all", "--format", "json").data
    assert result["retried"] is True
    assert cold.report()["formed"] == 1
    cold.check()


# -- crontab -------------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path) -> Callable[..., Any]:
    """edenmem without a store in the environment, in a folder with a name to quote."""
    folder = tmp_path / "it's 100% here"
    folder.mkdir()
    cli = Cli("", folder)

    def run(*arguments: str, env: Mapping[str, str] | None = None) -> Any:
        environment = cli.environment(80, {"EDENMEM_EMBEDDING_PROVIDER": "none", **(env or {})})
        if not environment["EDENMEM_URI"]:
            del environment["EDENMEM_URI"]
        del environment["EDENMEM_EMBEDDING_PROVIDER"]
        return subprocess.run(
            [sys.executable, "-m", "edenmem", "cold", "crontab", *arguments],
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=60,
            check=False,
        )

    run.folder = folder  # type: ignore[attr-defined]
    return run


def cron_command(result: Any) -> tuple[str, str]:
    """The times and the command of the printed line, the latter as the shell is given it."""
    assert result.returncode == 0, result.stderr
    line = next(line for line in result.stdout.splitlines() if line.startswith("*/"))
    fields = line.split(" ", 5)
    assert "%" not in fields[5].replace(r"\%", "")  # each would be a line break
    return " ".join(fields[:5]), fields[5].replace(r"\%", "%")


def test_the_line_runs_this_edenmem_with_this_store(bare: Any) -> None:
    uri = f"sqlite:///{bare.folder}/memory.db"
    (bare.folder / "edenmem.toml").write_text("[profiles.prod.cold]\nconcurrency = 2\n")
    times, command = cron_command(bare("--uri", uri, "--profile", "prod"))
    assert times == "*/10 * * * *"
    words = shlex.split(command.removesuffix(" >/dev/null").partition(" && ")[2])
    assert words[0].startswith(str(Path(sys.executable).parent))
    assert words[1:4] == ["cold", "run", "--quiet"] or words[1:3] == ["-m", "edenmem"]
    assert words[-4:] == ["--profile", "prod", "--uri", uri]


def test_the_help_pipes_no_units_of_systemd_into_cron(bare: Any) -> None:
    """It would also replace the lines of other programs."""
    assert "| crontab" not in bare("--help").stdout


def test_the_line_works_in_a_shell(bare: Any) -> None:
    uri = f"sqlite:///{bare.folder}/memory.db"
    SqliteStore(bare.folder / "memory.db").database.initialize()
    _, command = cron_command(bare(env={"EDENMEM_URI": uri}))
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd="/",
        env={"HOME": os.environ["HOME"], "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_configuration_file_is_named_wherever_cron_starts(bare: Any) -> None:
    (bare.folder / "other.toml").write_text('[store]\nuri = "sqlite:////srv/m.db"\n')
    _, command = cron_command(bare("--config", "other.toml"))
    assert ["--config", f"{bare.folder}/other.toml"] == shlex.split(command)[-3:-1]


def test_the_settings_of_this_folder_are_found_again(bare: Any) -> None:
    (bare.folder / "edenmem.toml").write_text('[store]\nuri = "sqlite:////srv/m.db"\n')
    result = bare()
    _, command = cron_command(result)
    assert command.startswith(f"cd {shlex.quote(str(bare.folder))} && ")
    assert f"WorkingDirectory={str(bare.folder).replace('%', '%%')}\n" in result.stdout


@pytest.mark.parametrize(
    "uri",
    ["mongodb://eve:hunter2@db.example/eden", "mongodb+srv://u:hunter2@db.example"],
)
@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_secret_is_never_written_down(bare: Any, uri: str, how: str) -> None:
    result = bare("--uri", uri) if how == "flag" else bare(env={"EDENMEM_URI": uri})
    assert result.returncode == 2
    assert "hunter2" not in result.stdout + result.stderr
    assert "--config" in result.stderr


def test_a_key_on_the_command_line_is_never_written_down(bare: Any) -> None:
    result = bare("--set", "llm.api_key=sk-very-secret")
    assert result.returncode == 2
    assert "sk-very-secret" not in result.stdout + result.stderr


def test_settings_from_variables_are_named(bare: Any) -> None:
    result = bare(env={"EDENMEM_LLM_API_KEY": "sk-very-secret"})
    assert "llm.api_key (EDENMEM_LLM_API_KEY)" in result.stderr
    assert "sk-very-secret" not in result.stdout + result.stderr


def test_the_units_of_systemd(bare: Any) -> None:
    uri = f"sqlite:///{bare.folder}/memory.db"
    result = bare("--uri", uri, "--every", "5m")
    assert "OnUnitInactiveSec=5min" in result.stdout
    start = next(line for line in result.stdout.splitlines() if line.startswith("ExecStart="))
    assert start.endswith(f'--uri "{uri.replace("%", "%%")}"')
    assert "TimeoutStopSec=30" in result.stdout
