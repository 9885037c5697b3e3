"""What the server writes to its log of failures: no words of a model's endpoint."""

from __future__ import annotations

import logging

import pytest
from starlette.requests import ClientDisconnect

from edenmem.endpoint.failures import SettingNames, Translator
from edenmem.errors import EdenmemError, ProviderAnswerInvalid, StoreUnreachable
from edenmem.server import process
from edenmem.server.problems import describe
from edenmem.server.proxy.background import Background
from edenmem.server.proxy.stages import Stages
from edenmem.server.state import Metrics
from edenmem.settings.schema import ServerSettings
from tests.server.town import Town
from tests.support.builders import some

pytestmark = pytest.mark.slow

WORDS = "the message 'Anna hides lanterns' was refused"


def rejected(status: int) -> EdenmemError:
    """An endpoint's error, whose body quotes a conversation."""
    import httpx
    import openai

    response = httpx.Response(status, request=httpx.Request("POST", "http://model.test/v1"))
    error = openai.APIStatusError(WORDS, response=response, body={"message": WORDS})
    translate = Translator(
        names=SettingNames.of_section("llm", "send less"), host="model.test", timeout=1, secret=""
    )
    failure = some(translate(error, model="m", model_setting="llm.model"))
    assert WORDS in failure.error.message
    return failure.error


@pytest.mark.parametrize("status", [400, 401, 404, 413, 429, 500])
async def test_what_a_provider_said_is_not_logged(
    town: Town, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.INFO)
    background = Background(town.service, ServerSettings())
    stages = Stages(background, Metrics())

    async def fail() -> None:
        raise rejected(status)

    describe(rejected(status))
    await stages.run("recall", fail(), 1, or_else=None)
    background.start(fail())
    await background.drain()
    assert caplog.text.count(f"model.test answered {status}") == 3
    assert "lanterns" not in caplog.text


@pytest.mark.parametrize("name", ["uvicorn.error", "mcp.server.streamable_http"])
@pytest.mark.parametrize(
    ("error", "is_logged"), [(ClientDisconnect(), False), (ValueError("odd"), True)]
)
def test_a_client_that_leaves_while_it_sends_is_no_fault(
    town: Town, caplog: pytest.LogCaptureFixture, name: str, error: Exception, is_logged: bool
) -> None:
    process.make_server(town.app, shutdown_seconds=1, ready=lambda: None)
    logging.getLogger(name).error("Error handling POST request", exc_info=error)
    assert ("Error handling POST request" in caplog.text) is is_logged


def test_a_store_that_failed_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    describe(StoreUnreachable("cannot reach mongodb://host"))
    describe(ProviderAnswerInvalid(WORDS))
    assert "cannot reach mongodb://host" in caplog.text
    assert "ProviderAnswerInvalid" in caplog.text
    assert "lanterns" not in caplog.text
