"""Prompts: one template per task in ``edenmem/prompts``, with a system and a user block.

Text of people, agents and tools passes the filter ``fenced``, which encloses the text in two lines
with a random token. The text is older than the token, so it cannot close the fence. All prompts of
a formation have one token and begin with the same words, up to the end of the conversation, so that
an endpoint with a prefix cache reads the conversation once. What a model wrote in between may have
seen the token: items with a fence in them are refused before they are shown again.

=============  ====================================================================================
task           values
=============  ====================================================================================
facts          conversation, now, agent, persona, speakers, scopes, fact_words
reflections    conversation, now, agent, persona, speakers, scopes, facts, reflection_words
single         values of ``facts`` and ``reflections``, without facts
verify         conversation, now, agent, persona, speakers, items (number, kind, content, sources,
               quote, doubts)
dedup          now, facts (number, content, neighbors (number, content, at)), fact_words
merge          now, facts (number, content, at), fact_words
consolidate    now, kind, owner, agent, persona, current, known, fixed (text), lost (sentences),
               reflections ((dated_at, content) oldest first), instructions (None if there are
               none), word_limit
shorten        kind, text, words, word_limit, fixed
recall         conversation, now, agent
propagate      now, source, target, instructions (None if there are none), memory (of the target),
               reflections ((number, content)), reflection_words
=============  ====================================================================================
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from pydantic import BaseModel

from edenmem.engine.runtime.concurrency import in_loop
from edenmem.errors import ProviderError
from edenmem.llm.protocol import LLM, AnswerT, LLMRequest
from edenmem.models.formation import CallUsage
from edenmem.models.ids import as_utc
from edenmem.text import legible


def render(task: str, /, *, fence: str | None = "", **values: object) -> tuple[str, str]:
    """Render the system and user text of a task's prompt.

    ``fence`` is the token: "" for a new one, None to leave out the text of others.

    Raises:
        jinja2.UndefinedError: a value of the template is missing.
        jinja2.TemplateNotFound: the task is unknown.
    """
    template = _environment().get_template(f"{task}.md.j2")
    token = secrets.token_hex(8) if fence == "" else fence
    context = template.new_context({**values, "fence_token": token})
    system, user = ("".join(template.blocks[name](context)) for name in ("system", "user"))
    return system.strip(), user.strip()


def render_own_words(task: str, /, **values: object) -> str:
    """Render a task's prompt without its fenced text."""
    return "\n\n".join(render(task, fence=None, **values))


def moment(value: datetime) -> str:
    """Format a time for prompts, to the minute and with time zone."""
    return f"{as_utc(value):%Y-%m-%d %H:%M} UTC"


@pass_context
def _fence(context: Context, text: str, name: str) -> str:
    token = context["fence_token"]
    if token is None:
        return ""
    return f"<<<{name} {token}>>>\n{legible(str(text)).strip()}\n<<<end of {name} {token}>>>"


@cache
def _environment() -> Environment:
    environment = Environment(  # noqa: S701 - prompts are plain text; data is fenced, not escaped
        loader=PackageLoader("edenmem", "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,  # prompts are part of the program
    )
    environment.filters["fenced"] = _fence
    environment.filters["moment"] = moment
    return environment


class Asker:
    """Ask a model about one item, identified by ``key`` (see `edenmem.llm.protocol.LLMRequest`).

    ``spent`` is the usage of all calls, including failed and cancelled ones, for error handlers.
    ``asked`` are the tasks in order, and ``fence`` is the token of all prompts. ``timeout`` limits
    one answer without retries, in seconds (None: the setting).
    """

    def __init__(self, llm: LLM, key: str, *, timeout: float | None = None) -> None:
        self.spent: list[CallUsage] = []
        self.asked: list[str] = []
        self.fence = secrets.token_hex(8)
        self._llm = llm
        self._key = key
        self._timeout = timeout

    async def ask(
        self, task: str, answer: type[AnswerT], *, model: str, **values: object
    ) -> AnswerT:
        """Render the task's prompt with ``values`` and return the validated answer.

        Raises:
            ProviderError: the model gave no valid answer.
        """
        self.asked.append(task)
        system, user = render(task, fence=self.fence, **values)
        request = LLMRequest(
            task=task,
            key=self._key,
            model=model,
            system=system,
            user=user,
            answer=answer,
            timeout=self._timeout,
        )
        spent: Sequence[CallUsage] = request.spent  # for a cancelled request
        try:
            reply = await in_loop(self._llm.ask, request)
            spent = reply.usage
        except ProviderError as error:
            spent = error.usage
            raise
        finally:
            self.spent.extend(spent)
        return reply.value


class Pong(BaseModel):
    """The answer."""

    ok: bool


async def ping(llm: LLM, model: str) -> tuple[CallUsage, ...]:
    """Send a short question to a model, and return its usage.

    Raises:
        ProviderError: the model gave no answer, or an invalid one.
    """
    request = LLMRequest(
        task="doctor",
        key="doctor",
        model=model,
        system="You answer a check of the connection.",
        user='Answer {"ok": true}.',
        answer=Pong,
    )
    return (await llm.ask(request)).usage
