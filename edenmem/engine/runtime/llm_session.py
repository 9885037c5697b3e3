"""Prompts: one template file for each task in ``edenmem/prompts``, with a system and a user block.

Whatever people, agents or tools wrote goes into a template through the filter ``fenced``, which
puts it between two lines that carry a token made at random for this one prompt. The text was
written before the token existed, so nothing in it can close the fence.

=============  ====================================================================================
task           values
=============  ====================================================================================
facts          conversation, now, agent, persona, speakers, scopes, fact_words
reflections    conversation, now, agent, persona, speakers, scopes, facts, reflection_words
single         all of the two above but ``facts``
rewrite        conversation, now, agent, persona, speakers, items (number, candidate (kind,
               content, sources), violations (reason), word_limit)
dedup          now, facts (number, content, neighbours (number, content, formed_at)), fact_words
merge          now, facts (number, content, formed_at), fact_words
consolidate    now, kind, owner, current, reflections ((formed_at, content) oldest first),
               instructions (None if there are none), word_limit
shorten        text, words, word_limit
recall         conversation, now, agent
propagate      now, source, target, instructions (None if there are none), memory (of the target),
               reflections ((number, content)), reflection_words
=============  ====================================================================================
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from edenmem.errors import ProviderError
from edenmem.llm.protocol import LLM, AnswerT, LLMRequest
from edenmem.models.formation import CallUsage
from edenmem.models.ids import as_utc
from edenmem.text import clean

_FENCE = re.compile(r"<<<(?:end of )?[\w ]+ [0-9a-f]{8,}>>>")
_FENCED = re.compile(r"^<<<([\w ]+ \w+)>>>\n.*?^<<<end of \1>>>$", re.MULTILINE | re.DOTALL)


def render(task: str, /, **values: object) -> tuple[str, str]:
    """The system and the user text of a task's prompt.

    Raises:
        jinja2.UndefinedError: a value that the template names is missing.
        jinja2.TemplateNotFound: there is no such task.
    """
    template = _environment().get_template(f"{task}.md.j2")
    context = template.new_context({**values, "fence_token": secrets.token_hex(8)})
    system, user = ("".join(template.blocks[name](context)) for name in ("system", "user"))
    return system.strip(), user.strip()


def render_own_words(task: str, /, **values: object) -> str:
    """What a task's prompt says by itself: all of it that stands in no fence."""
    return _FENCED.sub("", "\n\n".join(render(task, **values)))


def moment(value: datetime) -> str:
    """A time as every prompt writes it, to the minute and with its zone."""
    return f"{as_utc(value):%Y-%m-%d %H:%M} UTC"


def has_fence(text: str) -> bool:
    """Whether a text holds a line that fences data in a prompt, or pretends to."""
    return _FENCE.search(text) is not None


@pass_context
def _fence(context: Context, text: str, name: str) -> str:
    token = context["fence_token"]
    return f"<<<{name} {token}>>>\n{clean(str(text)).strip()}\n<<<end of {name} {token}>>>"


@cache
def _environment() -> Environment:
    environment = Environment(  # noqa: S701 - prompts are plain text; data is fenced, not escaped
        loader=PackageLoader("edenmem", "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,  # they are part of the program
    )
    environment.filters["fenced"] = _fence
    environment.filters["moment"] = moment
    return environment


class Asker:
    """Asks about one thing, named by ``key`` (see `edenmem.llm.protocol.LLMRequest`).

    ``spent`` grows with each answer, and with what a failed or a cancelled call cost, so that the
    handler of an error knows what was paid. ``asked`` are the tasks in order. ``timeout``: the
    seconds for each answer, without retries; None: as the settings say.
    """

    def __init__(self, llm: LLM, key: str, *, timeout: float | None = None) -> None:
        self.spent: list[CallUsage] = []
        self.asked: list[str] = []
        self._llm = llm
        self._key = key
        self._timeout = timeout

    async def ask(
        self, task: str, answer: type[AnswerT], *, model: str, **values: object
    ) -> AnswerT:
        """Render the task's prompt with ``values`` and return the validated answer.

        Raises:
            ProviderError: no valid answer was to be had.
        """
        self.asked.append(task)
        system, user = render(task, **values)
        request = LLMRequest(
            task=task,
            key=self._key,
            model=model,
            system=system,
            user=user,
            answer=answer,
            timeout=self._timeout,
        )
        spent: Sequence[CallUsage] = request.spent  # of a request that is cancelled
        try:
            reply = await self._llm.ask(request)
            spent = reply.usage
        except ProviderError as error:
            spent = error.usage
            raise
        finally:
            self.spent.extend(spent)
        return reply.value
