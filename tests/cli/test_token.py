"""``edenmem token``."""

from __future__ import annotations

import re

from tests.cli.conftest import LENA, MIRA, OTTO, Cli

_SECRET = re.compile(r"edm_[0-9a-f]{24}_[0-9a-f]{64}")


def test_a_token_is_created_listed_rotated_and_revoked(cli: Cli) -> None:
    made = cli(
        "token", "create", "phone", "--agent", "mira", "--agent", "otto", "--user", "lena",
        "--write", "--expires", "90d", columns=200,
    ).ok()  # fmt: skip
    (secret,) = _SECRET.findall(made.out)
    assert "only its hash is stored" in made.err
    (other,) = cli.json("token", "create", "site", "-a", "mira")
    assert _SECRET.fullmatch(other["token"])
    assert "digest" not in other

    phone, site = cli.json("token", "list")
    assert (phone["agents"], phone["user_id"], phone["can_write"]) == ([MIRA, OTTO], LENA, True)
    assert (site["agents"], site["user_id"], site["expires_at"]) == ([MIRA], None, None)
    assert not {"digest", "token"} & phone.keys()
    shown = cli("token", "list", columns=200).ok().out
    assert "mira, otto" in shown
    assert "read and write" in shown
    assert secret not in shown

    assert cli("token", "rotate", "phone").code == 2
    (new,) = cli.json("token", "rotate", "phone", "--yes")
    same = ("agents", "user_id", "can_write", "expires_at")
    assert [new[key] for key in same] == [phone[key] for key in same]
    assert new["token"] != secret
    assert cli("token", "rotate", "nobody", "--yes").code == 3

    taken = cli("token", "create", "Phone", "--agent", "mira")
    assert (taken.code, taken.out) == (4, "")
    assert cli("token", "revoke", "phone").code == 2
    assert "would revoke" in cli("token", "revoke", "phone", "--dry-run").ok().out
    cli("token", "revoke", "phone", "--yes").ok()
    assert cli("token", "revoke", "phone", "--yes").code == 3
    assert [each["name"] for each in cli.json("token", "list")] == ["site"]
    actions = [each["action"] for each in cli.json("log", "--limit", "4")]
    assert actions == ["remove_token", "rotate_token", "add_token", "add_token"]


def test_tokens_are_not_in_an_export(cli: Cli) -> None:
    (made,) = cli.json("token", "create", "site", "--agent", "mira")
    cli("export", "all.jsonl").ok()
    exported = (cli.cwd / "all.jsonl").read_text()
    assert "add_token" in exported  # the log is
    assert made["token"] not in exported
    assert "digest" not in exported


def test_what_does_not_exist_and_what_may_not_be_written_is_refused(cli: Cli) -> None:
    assert cli("token", "create", "x", "--agent", "nobody").code == 3
    assert cli("token", "create", "x", "--agent", "mira", "--user", "nobody").code == 3
    assert cli("token", "create", "x", "--agent", "mira", "--expires", "soon").code == 2
    assert cli("token", "create", "x y", "--agent", "mira").code == 2
    assert cli("--read-only", "token", "create", "x", "--agent", "mira").code == 2
    assert cli.json("token", "list") == []
