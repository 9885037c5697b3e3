"""The frame: help, the version, lazy groups, usage errors, global options."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
from typer.main import get_command

from edenmem import __version__
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.root import COMMANDS, app, run
from edenmem.settings.keys import defaults
from tests.cli.conftest import Cli
from tests.support.commands import every_command

EVERY = dict(every_command())


@pytest.mark.slow
def test_every_command_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """With a sentence, an example that is understood, and a text for each option."""
    for path, command in EVERY.items():
        assert run([*path, "--help"]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"Usage: edenmem {' '.join(path)}")
        assert len(shown.splitlines()[2].strip()) > 15, path
        assert "\b" not in shown
        assert all(len(line) <= 80 for line in shown.splitlines()), path
        found = _examples(command)
        assert any(example.split()[: len(path)] == [*path] for example in found), path
        for example in found:
            line = re.split(r" [|<>&#] ?| \d?> ", example)[0]
            _parse(shlex.split(line))
        for parameter in command.params:
            assert parameter.help, f"{' '.join(path)} {parameter.name}"
            shown_default = re.search(r"\[default: (\w+\.\w+), (\S+)\]", parameter.help)
            if shown_default:
                assert str(defaults()[shown_default[1]]) == shown_default[2]


def _examples(command: Any) -> list[str]:
    """The command lines in a command's help."""
    text = str(command.help or "").replace("\\\n", " ")
    lines = re.findall(r"^ *(?:\w+=\S+ )?edenmem (.+?)(?: {2,}\(.*)?$", text, re.MULTILINE)
    return [line for line in lines if line.split()[0] in COMMANDS]


def _parse(arguments: list[str]) -> None:
    """Parse without running: an unknown command, option or choice is an error."""
    context = get_command(app).make_context("edenmem", arguments, obj=Invocation())
    while True:
        group: Any = context.command
        if not hasattr(group, "resolve_command"):
            return
        name, command, rest = group.resolve_command(context, context._protected_args + context.args)
        context = command.make_context(name, rest, parent=context)


def test_defaults_from_settings_are_shown() -> None:
    texts = [str(vars(one).get("help")) for one in EVERY["serve",].params]
    assert any("[default: server.port, 8377]" in text for text in texts)


@pytest.mark.parametrize("option", ["--user", "--account", "--group", "--shard", "--session"])
def test_the_options_of_a_scope_mean_the_same_in_every_command(option: str) -> None:
    found = [each for command in EVERY.values() for each in command.params if option in each.opts]
    assert len(found) > 3
    assert len({(each.help, each.metavar, each.multiple) for each in found}) == 1


def test_commands_that_write_can_be_tried_and_explained() -> None:
    """Every change by hand takes --dry-run and --reason, and asks only if it destroys."""
    writing = {
        ("edit",), ("delete",), ("restore",), ("undo",), ("agent", "set"),
        ("scope", "policy"), ("scope", "pause"), ("scope", "resume"),
        ("fact", "add"), ("fact", "edit"), ("reflection", "add"), ("consolidation", "edit"),
    }  # fmt: skip
    for path in writing:
        options = {option for p in EVERY[path].params for option in p.opts}
        assert {"--dry-run", "--reason"} <= options, path


def test_the_first_screen_names_every_command_in_24_lines(shared_cli: Cli) -> None:
    shown = shared_cli().ok().out.splitlines()
    assert len(shown) < 24
    assert max(map(len, shown)) <= 80
    named = {line[start : start + 14].strip() for line in shown[1:] for start in (2, 42)}
    assert named >= COMMANDS.keys()


def test_the_commands_are_at_most_as_many_as_are_decided() -> None:
    assert len(EVERY) <= 81


@pytest.mark.parametrize("arguments", [["--version"], ["--quiet", "--version"]])
def test_version(arguments: list[str], shared_cli: Cli) -> None:
    assert shared_cli(*arguments).ok().out == f"edenmem {__version__}\n"


def imported_by(arguments: list[str]) -> set[str]:
    code = (
        "import sys\n"
        f"sys.argv = ['edenmem', *{arguments!r}]\n"
        "from edenmem.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stderr.splitlines())


HEAVY = {"pydantic", "openai", "numpy", "onnxruntime", "pymongo", "asyncio", "jinja2", "tabulate"}


def test_version_loads_nothing() -> None:
    assert not imported_by(["--version"]) & {"typer", "msgspec", *HEAVY}


@pytest.mark.slow
def test_help_of_the_root_loads_no_command() -> None:
    loaded = imported_by(["--help"])
    commands = {name for name in loaded if name.startswith("edenmem.cli.commands.")}
    assert not commands
    assert not loaded & HEAVY
    assert "rich" not in loaded


@pytest.mark.slow
def test_listing_scopes_loads_nothing_heavy(shared_cli: Cli) -> None:
    loaded = imported_by(["--uri", shared_cli.uri, "scope", "list"])
    assert "edenmem.cli.commands.scopes" in loaded
    assert not loaded & {*HEAVY, "rich", "questionary", "click"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["-v"], "COMMAND is missing"),
        (["fact", "list", "--user"], "--user needs a value"),
        (["search", "lantern", "--explain=3"], "--explain takes no value"),
        (["agent", "set", "mira", "otto"], "too many arguments: otto"),
    ],
)
def test_errors_of_the_parser_have_our_form(line: list[str], message: str, shared_cli: Cli) -> None:
    refused = shared_cli(*line)
    assert (refused.code, refused.out) == (2, "")
    assert f"edenmem: error: {message}\n" in refused.err
    assert "  hint: see 'edenmem" in refused.err


def test_a_wrong_request_is_one_message_and_exit_2(shared_cli: Cli) -> None:
    for arguments, said in (
        (["fcat"], "did you mean 'fact'?"),
        (["fact", "lst"], "did you mean 'list'"),
        (["nonsense"], "see 'edenmem --help'"),
        (["fact", "list", "--nope"], "no such option: '--nope'"),
        (["fact", "list", "--agnt", "mira"], "did you mean '--agent'?"),
        (["consolidation", "edit", "--wordlimit", "3"], "see 'edenmem consolidation edit --help'"),
        (["scope", "policy", "--wordlimit", "3"], "did you mean '--word-limit'?"),
        (["serch", "x"], "did you mean 'search'?"),
        (["conso"], "see 'edenmem --help'"),
        (["consoli"], "see 'edenmem --help'"),
        (["completion"], "see 'edenmem --help'"),
        (["migr"], "did you mean 'migrate'?"),
        (["fact", "list", "--limit", "x"], "--limit takes a whole number, not 'x'"),
        (["fact", "list", "--limit", "-1"], "at least 0"),
        (["search", "x", "--limit", "101"], "from 1 to 100"),
        (["fact", "list", "--format", "xml"], "one of table, json, jsonl, csv, markdown"),
        (["fact", "list", "--scope", "planet"], "one of agent, shard, group, user, session"),
        (["fact", "list", "--scope", "usr"], "did you mean 'user'?"),
        (["search", "x", "--agent", "mira", "--in", "fact"], "did you mean 'facts'?"),
        (
            ["search", "x", "--agent", "mira", "--recipe", "convx"],
            "one of convex, rrf, semantic, text",
        ),
        (["context", "first-visit", "--recall", "alway"], "did you mean 'always'?"),
        (["doctor", "--check", "vector"], "did you mean 'vectors'?"),
        (["scope", "policy", "--agent", "mira", "--default", "word-limt"], "word-limit"),
        (["mcp", "config", "claud"], "claude"),
        (["fact", "search", "x"], "did you mean 'edenmem search'?"),
        (["rm", "x"], "did you mean 'edenmem delete'?"),
        (["edit", "mira"], "expected a fact, a reflection or a scope"),
        (["show"], "REF is missing\n  hint: see 'edenmem show --help'"),
        (["search"], "QUERY is missing\n  hint: see 'edenmem search --help'"),
        (["eval"], "QUERIES is missing\n  hint: see 'edenmem eval --help'"),
        (["fact", "list"], "--agent is missing\n  hint: one of: mira, otto"),
        (
            ["context"],
            "SESSION is missing\n  hint: see 'edenmem context --help'",
        ),
        (["delete"], "REF is missing"),
        (["restore", "mira/user:lena"], "--version is missing"),
        (["restore", "f" * 23 + "1"], "--version is missing\n  hint: versions: "),
        (["fact", "edit", "f" * 23 + "1"], "--content or --file is missing"),
        (["undo"], "ENTRY, --run or --last is missing\n  hint: list entries: edenmem log"),
        (["undo", "1", "--run", "2"], "ENTRY, --run and --last exclude each other"),
        (["migrate", "verify"], "RUN is missing\n  hint: list runs: edenmem migrate status"),
        (["migrate", "rollback"], "RUN is missing\n  hint: list runs: edenmem migrate status"),
        (["cold", "retry"], "FORMATION or --all is missing\n  hint: list formations: "),
        (["export"], "FILE is missing\n  hint: see 'edenmem export --help'"),
        (["fact", "add", "--agent", "mira"], "TEXT, --content or --file is missing\n  hint: see "),
        (["mcp", "config"], "CLIENT is missing\n  hint: one of: claude"),
        (
            ["form"],
            "SESSION, --due, --idle or --agent is missing\n  hint: see 'edenmem form --help'",
        ),
        (["fact", "list", "--since", "yesterdayish"], "2025-03-01T14:30"),
        (["fact", "list", "--since", "1d", "--until", "2d"], "--since must be before --until"),
        (["fact", "list", "--set", "search.top_k"], "KEY=VALUE"),
        (["fact", "list", "--set", "search.topk=3"], "did you mean search.top_k?"),
        (["cold", "crontab", "--every", "90s"], "whole minutes"),
        (["form", "first-visit", "--due"], "exclude each other"),
        (["cold", "retry", "--all", "abcd1234"], "exclude each other"),
        (["mcp", "--port", "0"], "--host and --port need --http"),
        (["export", "x.json"], "export writes JSON Lines"),
        (["search", "1", "2", "3", "4", "--agent", "mira"], "at most 3"),
        (["demo", "--format", "json"], "does not support --format json"),
        (["agent", "add", "x", "--id", "xyz"], "24 hex digits"),
        (["user", "add", "   "], "invalid username"),
        (["user", "add", "le\x1b[2Jna"], "no control characters"),
        (["agent", "add", "mi\nra"], "no control characters"),
        (["agent", "add", "\u202eexe.arim"], "no control characters"),
    ):
        result = shared_cli(*arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert result.err.startswith("edenmem: error: ")
        assert said in result.err
        assert len(result.err.splitlines()) <= 2, result.err


def test_a_name_that_a_shell_changes_is_accepted_with_a_note(cli: Cli) -> None:
    added = cli("user", "add", "zen garden!").ok()
    assert "in commands, write the name as 'zen garden!'" in added.err
    assert "write the name as" not in cli("user", "add", "zen.1234").ok().err
    assert cli.json("show", "zen garden!")[0]["username"] == "zen garden!"


def test_a_group_alone_shows_its_help(shared_cli: Cli) -> None:
    shared_cli("fact").fails(2, "Usage: edenmem fact")


def test_global_options_may_stand_before_or_after_the_command(shared_cli: Cli) -> None:
    before = shared_cli("--format", "json", "agent", "list").ok().data
    after = shared_cli("agent", "list", "--format", "json").ok().data
    between = shared_cli("--format=csv", "agent", "list", "--format", "JSON").ok().data
    within = shared_cli("agent", "--format", "json", "list").ok().data
    assert before == after == between == within
    assert [agent["username"] for agent in before] == ["mira", "otto"]


def test_a_flag_is_above_the_environment(shared_cli: Cli, cli: Cli) -> None:
    cli("agent", "add", "only-here").ok()
    names = [a["username"] for a in shared_cli.json("agent", "list", "--uri", cli.uri)]
    assert "only-here" in names
    shown = shared_cli.json("config", "show", "store.uri", "--uri", cli.uri)
    assert [(row["key"], row["origin"]) for row in shown] == [("store.uri", "--uri")]


def test_an_error_names_the_option_or_variable_that_set_the_value(cli: Cli) -> None:
    invalid = "invalid store URI 'foo://bar'"
    assert f"--uri: {invalid}" in cli("status", "--uri", "foo://bar").err
    assert f"EDENMEM_URI: {invalid}" in cli("status", env={"EDENMEM_URI": "foo://bar"}).err
    assert "--set: search.top_k must be" in cli("status", "--set", "search.top_k=x").err


@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        (["--uri", "sqlite:///new.db"], "'edenmem init --uri sqlite:///new.db'"),
        (["--uri", "sqlite:///my $new.db"], "'edenmem init --uri \"sqlite:///my \\$new.db\"'"),
        (
            ["--config", "my.toml", "--profile", "x"],
            "'edenmem init --config my.toml --profile x'",
        ),
        ([], "'edenmem init'"),
    ],
)
def test_suggested_commands_repeat_the_options_of_the_store(
    cli: Cli, given: list[str], suggested: str
) -> None:
    (cli.cwd / "my.toml").write_text("[profiles.x]\n")
    missing = {"EDENMEM_URI": "" if "--uri" in given else "sqlite:///none.db"}
    cli("agent", "list", *given, env=missing).fails(5, f"hint: create it with {suggested}\n")
    assert suggested in cli("status", *given, env=missing).err  # a note
    assert suggested in cli("doctor", *given, env=missing).out.replace("\n        ", " ")


def test_a_suggested_command_never_shows_a_password(cli: Cli) -> None:
    invocation = Invocation()
    invocation.uri = "mongodb://anna:pass@host/eden"
    advice = invocation.repeat_options("run 'edenmem init' or see 'edenmem help mongodb'")
    assert advice == (
        "run 'edenmem init --uri \"mongodb://anna:***@host/eden\"' or see 'edenmem help mongodb'"
    )


@pytest.mark.slow
def test_secrets_are_never_shown(shared_cli: Cli) -> None:
    secret = "sk-very-secret-indeed"
    env = {
        "OPENAI_API_KEY": secret,
        "EDENMEM_SEARCH_RERANK_API_KEY": secret,
        "EDENMEM_URI": f"mongodb://root:{secret}@localhost:1/eden",
        "EDENMEM_STORE_CONNECT_TIMEOUT_SECONDS": "0.2",
    }
    for arguments in (
        ["config", "show"],
        ["config", "show", "--format", "json"],
        ["status"],
        ["init"],
    ):
        done = shared_cli(*arguments, columns=200, env=env)
        assert secret not in done.out + done.err, arguments


def test_quiet_leaves_notes_out_but_no_errors(cli: Cli) -> None:
    assert cli("session", "list", "--agent", "otto").ok().err == "no sessions\n"
    assert cli("session", "list", "--agent", "otto", "--quiet").ok().err == ""
    assert "error" in cli("show", "nobody", "--quiet").err


def test_no_secret_is_taken_from_the_words_of_a_command(shared_cli: Cli) -> None:
    """They are in the list of processes for everybody, and in the history of the shell."""
    for key, variable in (
        ("llm.api_key", "EDENMEM_LLM_API_KEY"),
        ("embedding.api_key", "EDENMEM_EMBEDDING_API_KEY"),
        ("search.rerank_api_key", "EDENMEM_SEARCH_RERANK_API_KEY"),
    ):
        refused = shared_cli("agent", "list", "--set", f"{key}=sk-very-secret")
        assert (refused.code, refused.out) == (2, "")
        assert variable in refused.err
        assert "sk-very-secret" not in refused.err


def test_a_password_in_an_address_is_warned_about(shared_cli: Cli) -> None:
    uri = "mongodb://eve:hunter2@127.0.0.1:9/eden"
    refused = shared_cli(
        "--uri", uri, "agent", "list", "--set", "store.connect_timeout_seconds=0.2"
    ).fails(5, "the password in --uri is visible")
    assert "hunter2" not in refused.err


@pytest.mark.parametrize(
    ("options", "environment", "is_colored"),
    [
        ((), {}, False),  # in a pipe
        (("--color", "always"), {}, True),
        ((), {"FORCE_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        (("--no-color",), {"FORCE_COLOR": "1"}, False),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_colors_are_as_asked(
    cli: Cli, options: tuple[str, ...], environment: dict[str, str], is_colored: bool
) -> None:
    shown = cli("config", "show", "search.top_k", *options, env=environment).ok()
    assert ("\x1b[" in shown.out) == is_colored


def test_short_forms(cli: Cli) -> None:
    assert cli("-V").ok().out == cli("--version").ok().out
    long = cli("agent", "list", "--format", "json").ok().out
    assert cli("agent", "list", "--json").ok().out == long
    assert cli("--json", "agent", "list").ok().out == long
