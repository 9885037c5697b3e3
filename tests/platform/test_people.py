"""Memory under the account that a message came from, and the person behind the account."""

from __future__ import annotations

from bson import ObjectId

from tests.platform.conftest import World, sentences
from tests.platform.double import User


def linked(world: World) -> ObjectId:
    """Anna's account on Discord."""
    return world.put(User(username="anna-on-discord", eden_user_id=world.anna))


def test_forgetting_a_person_forgets_every_account(world: World) -> None:
    """Both for edenmem and for the platform's next cold run."""
    world.eden("init", "--yes").ok()
    discord = linked(world)
    platform = world.platform()
    for sender, numbers in ((world.anna, range(4)), (discord, range(4, 8))):
        assert platform.form(world.put_session(sentences("Anna", *numbers), sender=sender))
    world.put_session(sentences("Anna", *range(8, 12)), sender=discord)
    world.eden("forget", "--user", "anna", "--yes").ok()
    assert world.cold_run_of_the_platform() == []
    assert world.facts() == []
