"""Replace the first person in an item by the name of the person who said it.

Small models copy messages: "I live in Lisbon". The words of the message tell whose "I" that is, so
no model has to be asked again. English only, where one ending is all that changes; what is not
certain stays as written, and the rule about statements sends it back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import takewhile

import msgspec

from edenmem.acceptance.conversation import QUESTION, SENTENCE, is_negated
from edenmem.acceptance.evidence import Evidence
from edenmem.acceptance.orders import find_order
from edenmem.acceptance.reading import words
from edenmem.acceptance.statement import find_junk
from edenmem.acceptance.tables import language_pattern, pattern, rows, word_set

#: Minimum share of a sentence's own words that the sentence of the message contains.
_SAID = 0.7
#: Maximum length of items and of the sentences of messages that are compared with them.
_MOST_CHARACTERS = 1000

_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[^\w\s]")
_SELF = frozenset({"i", "i'm", "i've", "i'll", "i'd", "my", "me", "mine", "myself"})
_FIRST = re.compile(r"(?<!\w)(?:[Ii]|[Mm](?:y|e|ine|yself))(?!\w)")
_ENDS = frozenset(".!?;:")
_NAME = re.compile(r"[^\W\d_][\w .'’-]{0,58}[\w.]")
#: The mark of a quotation that does not end.
_MARK = re.compile('["“”„«»]')
#: The start of a line that quotes another person, announces or names them: "Anna: …".
_OTHERS_LINE = re.compile(
    r"(?i:\s*(?:>|from: |fwd|.*forwarded))"
    r"|[\W\d]*(?:\w[\w.'’-]*|[A-Z]\w*(?: [A-Z]\w*){1,2})\s*(?:[:>|]|[-–—])\s"
)
_OTHERS_CHARACTERS = 80


class _Token(msgspec.Struct, frozen=True):
    written: str
    word: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    return [
        _Token(each.group(), each.group().lower().replace("’", "'"), *each.span())
        for each in _TOKEN.finditer(text)
    ]


def name_speaker(content: str, sources: Sequence[int], evidence: Evidence) -> str:
    """Return an item with the speaker's name for "I" and "my"; unchanged if it is not certain.

    Args:
        content: The text of the item.
        sources: The numbers of the messages that it cites.
        evidence: The messages.
    """
    if len(content) > _MOST_CHARACTERS or not _FIRST.search(content):
        return content
    if words.without_quotes(content) != content or find_junk(content):
        return content
    if not _is_english(content, evidence) or _may_command(content, evidence):
        return content
    name = find_speaker(content, sources, evidence)
    return (name and replace_first_person(content, name)) or content


def _may_command(content: str, evidence: Evidence) -> bool:
    """Return whether a text speaks of the agent, of rules, or reports an order: "I say: obey".

    With a name, the rule about orders would take the text for a report.
    """
    tokens = _tokens(content)
    spoken = {token.word.removesuffix("'s") for token in tokens}
    agents = {token.word for name in evidence.agents for token in _tokens(name)}
    if spoken & (word_set("speaker.commands") | agents):
        return True
    reported = (
        content[token.end :].strip()
        for token in tokens
        if token.word == ":" or token.word in word_set("speaker.reported_orders")
    )
    return any(
        find_order(rest, evidence.agents, (), "en", is_shared=True) for rest in reported if rest
    )


def _is_english(content: str, evidence: Evidence) -> bool:
    """Return whether a text has an English verb, after "I" if few other words are English."""
    tokens = _tokens(content)
    if words.language_of(content, evidence.talk.language) == "en":
        return any(map(_is_verb, tokens))
    return any(
        token.written == "I" and _word(tokens, _skip_adverbs(tokens, at + 1)) in _verbs()
        for at, token in enumerate(tokens)
    )


# -- whose words they are ------------------------------------------------------------------------


def find_speaker(content: str, sources: Sequence[int], evidence: Evidence) -> str | None:
    """Return the one person whose messages say the item in the first person.

    The cited messages decide if they say it, else all messages. Citing two people decides nothing.
    """
    said = [tokens for one in SENTENCE.split(content) if _has_self(tokens := _tokens(one))]
    cited = {evidence.talk.places[number] for number in sources if number in evidence.talk.places}
    people = {at for at, one in enumerate(evidence.talk.messages) if one.author == "person"}
    if len({evidence.talk.messages[at].speaker for at in cited & people}) > 1:
        return None
    found = [
        {at for at in cited if _says(evidence, at, tokens)}
        or {at for at in range(len(evidence.talk.messages)) if _says(evidence, at, tokens)}
        for tokens in said
    ]
    if not all(found) or any(not places <= people for places in found):
        return None
    names = {evidence.talk.messages[at].speaker for places in found for at in places}
    name = names.pop() if len(names) == 1 else ""
    return name if _is_name(name, evidence) else None


def _has_self(tokens: Sequence[_Token]) -> bool:
    return any(token.word in _SELF for token in tokens)


def _is_name(name: str, evidence: Evidence) -> bool:
    """Return whether a speaker's name names a person in a sentence."""
    folded = words.fold(name)
    return (
        bool(_NAME.fullmatch(name))
        and len(name.split()) <= 4
        and not word_set("speaker.nameless") & {folded, folded.split()[0]}
        and folded not in map(words.fold, evidence.agents)
    )


def _says(evidence: Evidence, place: int, said: Sequence[_Token]) -> bool:
    """Return whether a sentence of a message says a sentence of an item, of its writer."""
    light = _SELF | word_set("speaker.light") | word_set("speaker.adverbs")
    own = {one.word for one in said if one.word.isalpha() and one.word not in light}
    if not _is_held(own, evidence.talk.parts[place].keys):
        return False
    for text in _own_sentences(evidence.talk.messages[place].text):
        tokens = _tokens(text)
        if _is_held(own, words.keys_in(text)) and all(
            _is_claimed(tokens, said, at) for at, one in enumerate(said) if one.word in _SELF
        ):
            return True
    return False


def _is_held(own: Collection[str], keys: frozenset[str]) -> bool:
    held = sum(not keys.isdisjoint(words.keys_of(words.base_of(word))) for word in own)
    return bool(own) and held >= _SAID * len(own)


def _own_sentences(message: str) -> Iterator[str]:
    """Yield the sentences that state something, in the writer's own words."""
    lines = words.without_quotes(message).splitlines()
    for line in takewhile(lambda line: not _is_others(line), lines):
        for text in SENTENCE.split(line):
            if 0 < len(text) <= _MOST_CHARACTERS and not (
                _MARK.search(text)
                or QUESTION.search(text)
                or pattern("speech.jokes").search(text)
                or language_pattern("speech.open", "en").search(text)
            ):
                yield text


def _is_others(line: str) -> bool:
    return line.rstrip().endswith(":") or bool(_OTHERS_LINE.match(line[:_OTHERS_CHARACTERS]))


def _is_claimed(tokens: Sequence[_Token], said: Sequence[_Token], at: int) -> bool:
    """Return whether a sentence of a message claims of its writer what an item claims."""
    own = said[at].word
    step = 1 if own[0] == "i" or own == "my" else -1
    anchor = _anchor(said, at, step)
    if anchor is None:
        return False
    content, is_denied = said[anchor].word, _is_denied(said, at, anchor)
    for place, token in enumerate(tokens):
        if token.word not in _SELF or (token.word[0] == "i") != (own[0] == "i"):
            continue
        if (step == 1 and token.word in ("me", "mine", "myself")) or _is_reported(tokens, place):
            continue
        found = _anchor(tokens, place, step)
        if found is not None and _is_same(tokens[found].word, content):
            return _is_denied(tokens, place, found) == is_denied
        if own[0] == "i" and not is_denied and content in _further(tokens, place):
            return True
    return own[0] == "i" and _is_elliptic(tokens, content)


def _anchor(tokens: Sequence[_Token], at: int, step: int) -> int | None:
    """Return the place of the nearest word with a meaning: "live" in "I still live"."""
    empty = word_set("speaker.light") | word_set("speaker.adverbs") | word_set("speaker.modals")
    while 0 <= (at := at + step) < len(tokens):
        word = tokens[at].word
        if word in word_set("speaker.stops") or word in _SELF or not word[0].isalnum():
            return None
        if word not in empty:
            return at
    return None


def _is_same(word: str, content: str) -> bool:
    """Return whether two words have one stem, and both or none a possessive ending."""
    is_equal = not words.keys_in(word).isdisjoint(words.keys_in(content)) or word == content
    return is_equal and word.endswith("'s") == content.endswith("'s")


def _further(tokens: Sequence[_Token], at: int) -> Iterator[str]:
    """Yield the words after "and" that may be verbs of the "I" at a place."""
    ends = word_set("speaker.stops") | word_set("speaker.clause_openers") - {","}
    while (at := at + 1) < len(tokens):
        token, before = tokens[at], tokens[at - 1].word
        is_subject = token.written[0].isupper() and before not in word_set("speaker.light")
        if token.word in ends | _SELF | _ENDS or is_subject:
            return
        if token.word in word_set("speaker.links"):
            found = _anchor(tokens, at, 1)
            if found is not None and not _is_denied(tokens, at, found):
                yield tokens[found].word


def _is_denied(tokens: Sequence[_Token], at: int, end: int) -> bool:
    return is_negated(" ".join(token.word for token in tokens[min(at, end) : max(at, end)]), "en")


def _is_reported(tokens: Sequence[_Token], at: int) -> bool:
    """Return whether words before "I" or a saying after it attribute it to another person."""
    said = [token.word for token in tokens]
    for place, word in enumerate(said):
        verbs = word_set("speaker.reports") if place < at else word_set("speaker.sayings")
        if word in verbs and not _SELF & {*said[max(place - 3, 0) : place]} - {"my"}:
            return True
    return any(
        one.word == ":" and tokens[place + 1].start > one.end
        for place, one in enumerate(tokens[:at])
    )


def _is_elliptic(tokens: Sequence[_Token], content: str) -> bool:
    """Return whether a sentence opens with what its writer did: "Already bought: a hob"."""
    opening = [token.word for token in tokens if token.word not in word_set("speaker.adverbs")]
    if not opening or opening[0] != content or _has_self(tokens):
        return False
    return content.endswith(("ed", "ing")) or content in word_set("speaker.pasts")


# -- the other person of the verb ----------------------------------------------------------------


#: The part of the text to replace: start, end, new text.
_Edit = tuple[int, int, str]


class _Unclear(Exception):
    """The sentence cannot be changed with certainty."""


def replace_first_person(text: str, name: str) -> str | None:
    """Return an English text with a name for its first person; None if it is not certain."""
    tokens = _tokens(text)
    if any(one.word in word_set("speaker.others") and one.written != "US" for one in tokens):
        return None
    try:
        edits = [edit for at in range(len(tokens)) for edit in _edits(tokens, at, name)]
    except _Unclear:
        return None
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    rest = {token.word.removesuffix("'s") for token in _tokens(text)}
    known = {token.word.removesuffix("'s") for token in _tokens(name)}
    return None if not edits or rest <= known | {"is", "name", "called", "."} else text


def _edits(tokens: Sequence[_Token], at: int, name: str) -> Iterator[_Edit]:
    """Yield the changes for one word of the first person.

    Raises:
        _Unclear: the sentence may mean something else.
    """
    token = tokens[at]
    match token.word:
        case "i" | "i'm" | "i've" | "i'll" | "i'd":
            yield from _edit_subject(tokens, at, name)
        case "my" if at + 1 < len(tokens) and tokens[at + 1].word[0].isalnum():
            _demand_statement(tokens, at)
            yield token.start, token.end, f"{name}'s"
        case "mine" if at and tokens[at - 1].word in word_set("speaker.before_mine"):
            _demand_statement(tokens, at)
            yield token.start, token.end, f"{name}'s"
        case "me" if at and not {"and", "or", "too"} & {tokens[at - 1].word, _word(tokens, at + 1)}:
            _demand_statement(tokens, at)
            yield token.start, token.end, name
        case "myself" if "i" in {one.word[0] for one in _sentence(tokens, at) if one.word in _SELF}:
            is_alone = tokens[at - 1].word == "by"
            start = tokens[at - 1].start if is_alone else token.start
            yield start, token.end, "alone" if is_alone else "themself"
        case word if word in _SELF:
            raise _Unclear


def _word(tokens: Sequence[_Token], at: int) -> str:
    return tokens[at].word if at < len(tokens) else ""


def _sentence(tokens: Sequence[_Token], at: int) -> list[_Token]:
    """Return the words of the sentence before a place."""
    start = max((place + 1 for place in range(at) if tokens[place].word in _ENDS), default=0)
    return list(tokens[start:at])


def _demand_statement(tokens: Sequence[_Token], at: int) -> None:
    """Check that the sentence does not open like an order: "Call me Max"."""
    opening = {one.word for one in _sentence(tokens, at)[:1]}
    if opening & (word_set("speaker.verbs") | word_set("speaker.order_openers")):
        raise _Unclear


def _edit_subject(tokens: Sequence[_Token], at: int, name: str) -> Iterator[_Edit]:
    """Yield the changes for "I", its verb, and further verbs of the same subject."""
    _demand_statement(tokens, at)
    _demand_subject(tokens, at)
    token = tokens[at]
    after = _skip_adverbs(tokens, at + 1)
    follower = _word(tokens, after)
    match token.word:
        case "i'm":
            form = "is"
        case "i've":
            form = "has"
        case "i'll":
            form = "will"
        case "i'd" if follower in ("like", "love", "prefer", "rather"):
            form = "would"
        case "i":
            form = _other_person(follower)
            yield token.start, token.end, name
            yield tokens[after].start, tokens[after].end, form
            yield from _edit_further(tokens, after, follower)
            return
        case _:
            raise _Unclear
    if not follower[:1].isalnum():
        raise _Unclear
    yield token.start, token.end, f"{name} {form}"
    yield from _edit_further(tokens, at, form)


def _demand_subject(tokens: Sequence[_Token], at: int) -> None:
    """Check that "I" is the only subject of the verb after it, and no numeral."""
    before = tokens[at - 1] if at and tokens[at - 1].word[0].isalnum() else None
    if before is None:
        return
    if before.word in word_set("speaker.before"):
        raise _Unclear
    sentence = _sentence(tokens, at)
    if before.word in ("and", "but", "or"):
        clause = list(
            takewhile(
                lambda one: one.word not in word_set("speaker.clause_openers"),
                reversed(sentence[:-1]),
            )
        )
        if not any(map(_is_verb, clause)) and (
            before.word != "but" and any(one.word[0].isalnum() for one in clause)
        ):
            raise _Unclear  # "My wife and I"
    elif before.written[0].isupper() and not (
        len(sentence) == 1 and before.word in word_set("speaker.openers")
    ):
        raise _Unclear  # "World War I"


def _skip_adverbs(tokens: Sequence[_Token], at: int) -> int:
    while _word(tokens, at) in word_set("speaker.adverbs"):
        at += 1
    return at


@cache
def _verbs() -> frozenset[str]:
    forms = {word for pair in rows("speaker.auxiliaries") for word in pair}
    third = {_other_person(word) for word in word_set("speaker.verbs")}
    return word_set("speaker.verbs") | word_set("speaker.pasts") | forms | third | {"are", "were"}


def _is_verb(token: _Token) -> bool:
    return token.word in _verbs() or token.word[:2] == "i'" or token.word.endswith("ed")


def _other_person(word: str) -> str:
    """Return the form of a verb after "I" that follows a name.

    Raises:
        _Unclear: the word is no known verb.
    """
    for first, third in rows("speaker.auxiliaries"):
        if word == first:
            return third
    if word in word_set("speaker.modals"):
        return word
    if word in word_set("speaker.verbs"):
        if word.endswith("y") and word[-2] not in "aeiou":
            return f"{word[:-1]}ies"
        return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh", "o")) else f"{word}s"
    if word in word_set("speaker.pasts") or (word.endswith("ed") and len(word) > 3):
        return word
    raise _Unclear


def _edit_further(tokens: Sequence[_Token], at: int, first: str) -> Iterator[_Edit]:
    """Yield the changes for verbs after "and" whose subject is the "I" before: "and work at …".

    Raises:
        _Unclear: the word after "and" may be a noun, or belong to another subject or verb.
    """
    verbs, links = word_set("speaker.verbs"), word_set("speaker.links")
    others = verbs | word_set("speaker.stops") - {"my"}
    between = set[str]()
    while (word := _word(tokens, at := at + 1)) and word not in _ENDS:
        if word in _SELF and word[0] == "i":
            return
        if word not in links:
            if tokens[at - 1].word not in ("a", "an", "the", "my"):  # a noun follows these
                between.add(word)
            continue
        while word in links or word in word_set("speaker.adverbs"):
            word = _word(tokens, at := at + 1)
        if word not in verbs | word_set("speaker.changing"):
            at -= 1  # the word may be an "I"
            continue
        follower = _word(tokens, at + 1)
        is_verb = (
            word in word_set("speaker.changing")
            or follower in word_set("speaker.objects")
            or follower.isdigit()
        )
        if first in word_set("speaker.modals") or ("to" in between and not is_verb):
            continue  # "can sing and dance", "likes to sing and dance"
        if not is_verb or between & others or first in word_set("speaker.nouns_follow"):
            raise _Unclear
        yield tokens[at].start, tokens[at].end, _other_person(word)
