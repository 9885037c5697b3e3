"""The rules, and the judgement that they come to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from functools import cached_property

import msgspec

from edenmem.acceptance import dates, numbers, orders, secrets, statement, words
from edenmem.acceptance.dates import Said, Time
from edenmem.acceptance.evidence import (
    Candidate,
    Evidence,
    Judgement,
    SourceMessage,
    Violation,
    runs_of_three,
)
from edenmem.settings.schema import AcceptanceSettings

#: A statement of thirty words is shorter in any language; one "word" without end is not kept.
MOST_CHARACTERS = 1000

#: Of what was said of an item anywhere, the share that its named sources must hold.
_HELD = 0.5
#: The share that a person, or a tool that was asked, must have said or confirmed.
_BY_A_PERSON = 0.4
#: The same where the model itself named an agent's messages alone.
_BY_PEOPLE_ELSEWHERE = 0.8
#: The share that only an agent said, and was told "no", from which an item is denied.
_DENIED = 0.5
_MOST_SOURCES = 3


class Item(msgspec.Struct, kw_only=True, dict=True):
    """A candidate with its evidence, and what the rules have worked out of the two."""

    candidate: Candidate
    evidence: Evidence
    content: str
    sources: tuple[int, ...] = ()

    @cached_property
    def tokens(self) -> list[words.Word]:
        """Its words in scripts with spaces."""
        return words.words_of(self.content)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The languages that its words may be in, likeliest first."""
        usual = self.evidence.language
        return tuple(dict.fromkeys((words.language_of(self.content, usual), usual)))

    @cached_property
    def bare(self) -> str:
        """The text without its quotations."""
        return words.without_quotes(self.content)

    @cached_property
    def digits(self) -> str:
        """The text with the digits of all scripts as 0 to 9."""
        return words.ascii_digits(self.content)

    @cached_property
    def content_words(self) -> list[str]:
        """Its content words, folded."""
        found = words.content_words(self.tokens, self.languages)
        calendar = dates.calendar_words()
        return [word for word in found if word not in calendar]

    @cached_property
    def runs(self) -> list[str]:
        """Its runs without spaces, without speakers' names, numerals and dates."""
        names = sorted(
            {one.speaker for one in self.evidence.messages} | {self.evidence.user or ""},
            key=len,
            reverse=True,
        )
        text = self.digits
        if len(text) == len(self.content):
            for one in self.days:
                text = text[: one.start] + " " * (one.end - one.start) + text[one.end :]
        text = _COUNTED.sub(" ", text)
        for name in filter(None, names):
            text = text.replace(name, " ")
        return words.runs_of(text)

    @cached_property
    def pieces(self) -> list[str]:
        """The pieces of its runs without spaces."""
        return [piece for run in self.runs for piece in words.pieces_of(run)]

    @cached_property
    def days(self) -> list[Said]:
        """The dates that it names."""
        return dates.find_dates(self.content)

    @cached_property
    def times(self) -> list[Time]:
        """The times of day that it names."""
        return list(dates.find_times(self.content))

    @cached_property
    def figures(self) -> list[numbers.Number]:
        """Its numbers, without those of its dates and times."""
        digits = self.digits
        if len(digits) == len(self.content):
            spans = [(one.start, one.end) for one in self.days]
            spans += ((one.start, one.end) for one in self.times)
            for start, end in spans:
                digits = digits[:start] + " " * (end - start) + digits[end:]
        found = list(numbers.find_figures(digits))
        found += numbers.find_number_words(self.content, self.languages[0], self.tokens)
        if self.languages[0] in ("zh", "ja"):
            found += numbers.find_han_numbers(self.content)
        return found

    @cached_property
    def hits(self) -> list[tuple[set[int], float]]:
        """For each word, piece and number that was said: the segments that hold it, its weight.

        A word that few messages hold says more about where an item comes from.
        """
        evidence = self.evidence
        held: list[set[int]] = []
        for word in set(self.content_words) - evidence.speakers:
            places: set[int] = set()
            for key in words.keys_of(word):
                places |= evidence.segments_of_key.get(key, set())
            held.append(places)
        held += (evidence.segments_of_key.get(piece, set()) for piece in set(self.pieces))
        wanted = [number.readings for number in self.figures]
        wanted += (frozenset(minute / 60 for minute in time.minutes) for time in self.times)
        for readings in wanted:
            said = enumerate(evidence.numbers_of_segments)
            held.append({place for place, some in said if not readings.isdisjoint(some)})
        return [(places, 1 / len(places)) for places in held if places]


#: A number with what it counts, and a day of the week: no words where spaces part none.
_COUNTED = re.compile(
    r"[\d.,:]+[^\W\d_a-z]?|[一二三四五六七八九十百千万]{1,12}[个個名歳岁枚円元度分点時年月日]|(?:星期|周|週)[一二三四五六日天]|[月火水木金土日]曜日?"
)


# -- sources -------------------------------------------------------------------------------------

_YES = re.compile(
    r"\W*(?:yes|yeah|yep|yup|yea|aye|exactly|right|correct|sure|absolutely|indeed|true"
    r"|definitely|of course|that's|thats|it is|they are|i do|i am|i did|ok|okay|sounds|perfect"
    r"|please do|do that"
    r"|ja|genau|stimmt|richtig|klar|doch|oui|ouais|exact|exactement|tout à fait|si|sí|claro"
    r"|exacto|correcto|eso|sì|esatto|certo|giusto|sim|isso|exato|certo|tak|zgadza|dokładnie"
    r"|klopt|inderdaad|precis|japp|jo"
    r"|да|ага|верно|точно|именно|конечно|так|evet|aynen|doğru|نعم|أجل|صحيح|हाँ|हां|जी"
    r"|सही)(?![^\W_])"
    r"|\W*(?:はい|うん|ええ|そう|その通り|对|對|是的|是啊|嗯|没错|好的|正确|네|예|응|맞아|맞습니다|그래|ใช่|ครับ|ค่ะ|👍|✅|👌)",
    re.IGNORECASE,
)
_NO = re.compile(
    r"\W*(?:no|nope|nah|not|never|wrong|nein|nicht|nie|non|pas|jamais|nunca|não|nee|niet|nie|nej"
    r"|inte|нет|не|неа|ні|hayır|yok|değil|لا|नहीं|ना)(?![^\W_])"
    r"|\W*(?:不|没|いいえ|いや|違|아니|ไม่)",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"(?<![^\W_])(?:no|not|never|n't|without|nein|nicht|kein\w*|nie|ohne|ne|pas|jamais|sans"
    r"|nunca|sin|non|mai|senza|não|sem|nee|niet|geen|nej|inte|нет|не|без|ні|değil|yok|لا|ليس"
    r"|नहीं)(?![^\W_])"
    r"|n['’]t\b|[不没無未]|ない|ません|않|없|안 |ไม่|allerg|vegan|vegetar",
    re.IGNORECASE,
)


def check_sources(item: Item) -> tuple[tuple[int, ...], str | None]:
    """The messages that an item comes from, and why they do not do.

    Numbers that were not offered are dropped. If what is left does not hold what was said of the
    item, but other messages do, those are its sources.
    """
    evidence = item.evidence
    named = [
        evidence.places[number] for number in item.candidate.sources if number in evidence.places
    ]
    named = list(dict.fromkeys(named))
    if not evidence.messages:
        return (), "comes from no message"
    total = sum(weight for _, weight in item.hits)
    if total and (not named or _held(item, _with_asked(evidence, named)) < _HELD * total):
        named = _ground(item, range(len(evidence.messages)), named)
    if not named:
        return (), "comes from no message that was read; name the messages that say it"
    if _is_denied(item):
        return _numbers(evidence, named), "was said by the agent, and a person said no to it"
    if _is_by_a_person(item, named, total):
        return _numbers(evidence, named), None
    people = [place for place in range(len(evidence.messages)) if _confirms(item, place)]
    found = _ground(item, people, [])
    least = _BY_PEOPLE_ELSEWHERE if _is_agents_alone(item) else _BY_A_PERSON
    if found and total and _is_by_a_person(item, found, total, least):
        return _numbers(evidence, found), None
    return _numbers(evidence, named), (
        "was said by the agent alone; keep what a person said or confirmed"
    )


def _numbers(evidence: Evidence, places: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(evidence.messages[place].number for place in places))


def _with_asked(evidence: Evidence, places: Iterable[int]) -> set[int]:
    """The places and, for each, the message before it: what was asked."""
    return {near for place in places for near in (place, place - 1) if near >= 0}


def _held(item: Item, places: Iterable[int]) -> float:
    """The weight of what the messages at these places hold of an item."""
    wanted = set(places)
    segments = {at for at, segment in enumerate(item.evidence.segments) if segment.place in wanted}
    return sum(weight for held, weight in item.hits if not held.isdisjoint(segments))


def _ground(item: Item, places: Iterable[int], named: list[int]) -> list[int]:
    """The few messages that hold most of an item, people's first; else those that were named."""
    total = sum(weight for _, weight in item.hits)
    left = set(places)
    found: list[int] = []
    held = 0.0
    while left and len(found) < _MOST_SOURCES and held < 0.9 * total:
        gains = {
            place: (_held(item, [*found, place]) - held) * _trust(item.evidence.messages[place])
            for place in left
        }
        best = min(left, key=lambda place: (-gains[place], place not in named, place))
        if gains[best] < 0.15 * total:
            break
        found.append(best)
        left.remove(best)
        held = _held(item, found)
    return sorted(found) or named


def _trust(message: SourceMessage) -> float:
    return {"person": 1.0, "tool": 0.9}.get(message.author, 0.6)


def _confirms(item: Item, place: int) -> bool:
    """Whether a message can bear an item: a person's, or what a tool answered to one."""
    message = item.evidence.messages[place]
    if message.author == "person":
        return True
    has_tool = any(
        segment.place == place and segment.author == "tool" for segment in item.evidence.segments
    )
    return has_tool and any(one.author == "person" for one in item.evidence.messages[:place])


def _is_agents_alone(item: Item) -> bool:
    """Whether all messages that the model named are an agent's."""
    evidence = item.evidence
    named = [evidence.places[one] for one in item.candidate.sources if one in evidence.places]
    return bool(named) and not any(_confirms(item, place) for place in named)


def _is_by_a_person(
    item: Item, places: list[int], total: float, least: float = _BY_A_PERSON
) -> bool:
    evidence = item.evidence
    bearing = [place for place in places if _confirms(item, place)]
    if not bearing:
        return False
    if not total:
        return True  # nothing to compare: the rule about words has its say
    segments: set[int] = set()
    for place in bearing:
        answered = place - 1 if _is_answer(item, place) else -1
        for at, segment in enumerate(evidence.segments):
            if (segment.place == place and segment.author in ("person", "tool")) or (
                segment.place == answered
            ):
                segments.add(at)
    said = sum(weight for held, weight in item.hits if not held.isdisjoint(segments))
    return said >= least * total


def _is_denied(item: Item) -> bool:
    """Whether a word or number of an item comes only from an agent that was told "no" at once."""
    if _DENIAL.search(item.content):
        return False
    evidence = item.evidence
    denied = {
        at
        for at, segment in enumerate(evidence.segments)
        if segment.author == "agent"
        and segment.place + 1 < len(evidence.messages)
        and evidence.messages[segment.place + 1].author == "person"
        and _NO.match(evidence.messages[segment.place + 1].text)
    }
    only = sum(weight for held, weight in item.hits if held <= denied)
    return only > 0 and only >= _DENIED * sum(weight for _, weight in item.hits)


def _is_answer(item: Item, place: int) -> bool:
    """Whether a person's message says yes to, or answers, the message before it."""
    messages = item.evidence.messages
    if place == 0 or messages[place].author != "person":
        return False
    reply, before = messages[place].text, messages[place - 1].text
    if _YES.match(reply):
        return True
    is_short = len(words.words_of(reply)) + len("".join(words.runs_of(reply))) // 3 <= 12
    if not is_short or not re.search(r"[?？؟]|吗|呢|ですか|ますか", before):
        return False
    return not _NO.match(reply) or bool(_DENIAL.search(item.content))


# -- names, numbers and dates --------------------------------------------------------------------

_SENTENCE_START = re.compile(r"(?:\A|[.!?:;…。]\s+|[\"“«„(\[]\s?|^[-•*]\s?)\Z")
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc]{3,}")
_NAME_PREPOSITION = words.word_set("in nach aus bei von mit namens und fur zu vor")
_VERB_AFTER_NAME = re.compile(
    r"['’]s? |\s(?:is|was|has|had|will|would|can|could|does|did|likes?|loves?|lives?|works?"
    r"|wants?|needs?|prefers?|plans?|moved|said|owns|ist|war|hat|wohnt|lebt|arbeitet|mag|möchte"
    r"|est|habite|travaille|aime|a|veut|es|vive|trabaja|tiene|quiere|è|vive|lavora|ha|vuole|é"
    r"|mora|trabalha|tem|quer|heeft|woont|werkt|wil|живёт|живет|работает|любит|хочет)\b"
)


def check_names(item: Item) -> str | None:
    """Every name occurs in what was read or in what surrounded it."""
    unknown = [name for name in _names_of(item) if not _is_known(item, name)]
    if not unknown:
        return None
    return f"names {_listed(unknown)}, which nobody mentioned"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name[:60]}'" for name in dict.fromkeys(names))


def _names_of(item: Item) -> list[str]:
    text = item.content
    calendar = dates.calendar_words()
    stops = [words.stop_words(language) for language in (*item.languages, "en")]
    found = item.tokens
    names = []
    for at, word in enumerate(found):
        written = word.written
        if not any(sign.isupper() for sign in written) or word.folded in calendar:
            continue
        if any(sign.isdigit() for sign in written):
            continue
        has_inner_capital = any(sign.isupper() for sign in written[1:])
        if not has_inner_capital and any(word.folded in stop for stop in stops):
            continue
        if _SENTENCE_START.search(text[: word.start]) and not has_inner_capital:
            following = found[at + 1] if at + 1 < len(found) else None
            is_pair = (
                following is not None
                and following.written[0].isupper()
                and text[word.end : following.start] == " "
                and "de" not in item.languages[:1]
            )
            if not is_pair and item.languages[0] == "de":
                continue
            if any(key in item.evidence.segments_of_key for key in words.keys_of(word.folded)):
                continue
        elif item.languages[0] == "de" and not has_inner_capital and not _is_german_name(found, at):
            continue
        names.append(written)
    names += _KATAKANA.findall(text)
    if item.candidate.kind == "fact":
        names += _new_ideographs(item)
    return names


_COMMON = frozenset(
    "负责喜欢希望需要预订参加住在生日父亲母亲用户表示计划工作学习予約参加担当担任希望好住所仕事電話出発到着購入利用者"
)


def _new_ideographs(item: Item) -> list[str]:
    """Ideographs side by side that nobody wrote and that no particle is made of: another name."""
    common = words.stop_signs() | _COMMON
    seen = item.evidence.lines
    text = _COUNTED.sub(" ", item.digits)
    return [
        match.group()
        for match in _IDEOGRAPHS.finditer(text)
        if sum(sign not in seen and sign not in common for sign in match.group()) >= 2
    ]


_IDEOGRAPHS = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]{2,3}")


def _is_german_name(found: list[words.Word], at: int) -> bool:
    """Whether a noun of a German sentence is a name: nouns are capitals too, but have articles."""
    before = found[at - 1] if at else None
    after = found[at + 1] if at + 1 < len(found) else None
    if before is not None and (before.folded in _NAME_PREPOSITION or before.written[0].isupper()):
        return True
    return after is not None and after.written[0].isupper()


def _is_known(item: Item, name: str) -> bool:
    evidence = item.evidence
    folded = words.fold(name).replace("’", "'")
    base = words.words_of(name)
    bare = base[0].folded if base else folded
    if bare in evidence.names or folded in evidence.folded or folded in evidence.lines:
        return True
    shortest = 5 if name.isascii() else 4
    if not name.isascii() and len(bare) >= 4 and bare[:-1] in evidence.name_stems:
        return True
    if len(bare) >= shortest and any(
        len(bare) - cut >= 4 and bare[: len(bare) - cut] in evidence.name_stems
        for cut in (0, 1, 2, 3)
    ):
        return True
    return len(bare) >= 4 and bare in evidence.name_stems


def check_numbers(item: Item) -> str | None:
    """Every number, date and time was said, or follows from what was said and when."""
    evidence = item.evidence
    for said in item.days:
        if not _is_date_said(item, said):
            return f"gives the date '{said.written.strip()}', which no message gives or means"
    for time in item.times:
        if not _is_time_said(evidence, time):
            return f"gives the time '{time.written}', which nobody mentioned"
    years = _years(evidence)
    for number in item.figures:
        if (
            number.readings.isdisjoint(evidence.all_numbers)
            and number.readings.isdisjoint(years)
            and not _is_part_of_digits(item, number)
        ):
            return f"gives the number '{number.written.strip()}', which nobody mentioned"
    for written in numbers.find_mixed(item.digits):
        if written not in evidence.lines and not _is_number_with_unit(item, written):
            return f"names '{written}', which nobody mentioned"
    return None


def _is_date_said(item: Item, said: Said) -> bool:
    return any(_is_grounded(item, *reading) for reading in said.readings)


def _is_time_said(evidence: Evidence, time: Time) -> bool:
    """Whether a time was said as such, or by its parts: "ten to five", "8 Uhr 45"."""
    if not evidence.minutes.isdisjoint(minute % 720 for minute in time.minutes):
        return True
    said = evidence.all_numbers
    for hour, minute in (divmod(one, 60) for one in time.minutes):
        if minute and minute in said and not said.isdisjoint((hour, hour % 12, hour % 12 + 12)):
            return True
        if minute and 60 - minute in said and not said.isdisjoint((hour + 1, hour % 12 + 1)):
            return True
    return False


#: The digits of a number that is written in groups: a phone number, an order.
_GROUPED = re.compile(r"\d(?:[ .,/()-]{0,2}\d){4,}")


def _is_part_of_digits(item: Item, number: numbers.Number) -> bool:
    """Whether a number is part of a longer one that was said, perhaps in other groups."""
    digits = re.sub(r"\D", "", number.written)
    return any(
        digits in joined and joined in item.evidence.long_digits
        for match in _GROUPED.finditer(item.digits)
        if (joined := re.sub(r"\D", "", match.group()))
    )


def _is_number_with_unit(item: Item, written: str) -> bool:
    """Whether "30km", "15th" or "1.5k" is a number that was said."""
    parts = [one.written for one in item.days]
    parts += (one.written for one in item.times)
    parts += (one.written for one in item.figures)
    if any(written in words.fold(part) for part in parts):
        return True  # judged as a part of that
    match = re.match(r"(\d{1,15})[^\W\d_]+\Z", written)
    return match is not None and float(match[1]) in item.evidence.all_numbers


def _years(evidence: Evidence) -> frozenset[float]:
    sent = {float(message.sent_at.year) for message in evidence.messages}
    meant = {
        float(year)
        for all_of_one in evidence.meant
        for one in all_of_one
        for year in (one.first.year, one.last.year)
    }
    return frozenset(sent | meant)


def _is_grounded(item: Item, year: int | None, month: int | None, day: int | None) -> bool:
    """Whether a date was named, or meant by a message of the item's sources."""
    evidence = item.evidence
    for said in evidence.all_dates:
        for other in said.readings:
            if _agree((year, month, day), other) and (other[2] is not None or day is None):
                if year is None or other[0] is not None:
                    return True
                if any(abs(year - one.sent_at.year) <= 1 for one in evidence.messages):
                    return True
    places = sorted(_source_places(item))
    last = len(evidence.messages) - 1
    near = {max(0, min(last, place + step)) for place in places for step in range(-3, 4)}
    means = [one for place in near for one in evidence.meant[place]]
    if any(_is_meant((year, month, day), one) for one in means):
        return True
    if any(_is_named_apart(evidence, place, (year, month, day)) for place in near):
        return True
    return any(
        _is_day_of(evidence, place, (year, month, day), has_other=bool(_exact(evidence, place)))
        for place in places
    )


def _is_named_apart(
    evidence: Evidence, place: int, wanted: tuple[int | None, int | None, int | None]
) -> bool:
    """Whether a message names a month and a day that it writes in words ("el tres de mayo")."""
    year, month, day = wanted
    if month not in evidence.months[place]:
        return False
    if year is not None and abs(year - evidence.messages[place].sent_at.year) > 1:
        return False
    said = evidence.numbers_of_segments
    return day is None or any(
        float(day) in said[at]
        for at, segment in enumerate(evidence.segments)
        if segment.place == place
    )


def _source_places(item: Item) -> list[int]:
    """Where an item comes from: a fact's sources; for a reflection all messages."""
    evidence = item.evidence
    if item.candidate.kind == "reflection":
        return list(range(len(evidence.messages)))
    named = [evidence.places[one] for one in item.sources if one in evidence.places]
    return named or list(range(len(evidence.messages)))


def _agree(one: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _is_meant(wanted: tuple[int | None, int | None, int | None], one: dates.Meant) -> bool:
    year, month, day = wanted
    if month is None:
        return year is None or one.first.year <= year <= one.last.year
    if day is not None and one.unit in ("m", "y"):
        return False
    at = one.first
    for _ in range(min((one.last - one.first).days, 366) + 1):
        if _agree((at.year, at.month, at.day), (year, month, day)):
            return True
        at += timedelta(days=1)
    return False


def _exact(evidence: Evidence, place: int) -> list[dates.Meant]:
    sent = evidence.messages[place].sent_at.date()
    return [
        one
        for one in evidence.meant[place]
        if one.unit == "d" and not one.first <= sent <= one.last
    ]


def _is_day_of(
    evidence: Evidence,
    place: int,
    wanted: tuple[int | None, int | None, int | None],
    *,
    has_other: bool,
) -> bool:
    """Whether a date is the day of a message, or a day of a month near it that it names.

    The day itself is not meant where the message speaks of another one ("tomorrow").
    """
    year, month, day = wanted
    sent = evidence.messages[place].sent_at.date()
    if _agree((sent.year, sent.month, sent.day), wanted) and (day is None or not has_other):
        return True
    if day is None or month is None or float(day) not in evidence.all_numbers:
        return False
    numbers_here = evidence.numbers_of_segments
    named_here = any(
        float(day) in numbers_here[at]
        for at, segment in enumerate(evidence.segments)
        if segment.place == place
    )
    months = {((sent.month - 1 + shift) % 12) + 1 for shift in (-1, 0, 1)}
    return (
        named_here
        and month in months
        and (year is None or abs(_days(year, month, day, sent)) <= 62)
    )


def _days(year: int, month: int, day: int, sent: date) -> int:
    try:
        return (date(year, month, day) - sent).days
    except ValueError:
        return 1000


# -- words, echo, statement and the rest ---------------------------------------------------------


def share_said(item: Item) -> float:
    """The share of an item's content words, or pieces of runs, that were said in the range."""
    evidence = item.evidence
    known = evidence.segments_of_key
    memory = evidence.memory_keys if item.candidate.kind == "reflection" else frozenset[str]()
    found = total = 0.0
    for word in dict.fromkeys(item.content_words):
        total += 1
        keys = words.keys_of(word)
        found += (
            any(key in known or key in memory or key in evidence.speaker_keys for key in keys)
            or word in evidence.names
            or (len(word) >= 5 and word in evidence.folded)
        )
    for run in item.runs:
        signs, covered = words.coverage(run, lambda piece: piece in known or piece in memory)
        total += signs / 2
        found += covered / 2
    for number in item.figures:
        total += 1
        found += not number.readings.isdisjoint(evidence.all_numbers)
    total += len(item.days) + len(item.times)
    found += sum(_is_date_said(item, date) for date in item.days)
    found += sum(_is_time_said(evidence, time) for time in item.times)
    return found / total if total else 1.0


def check_echo(item: Item) -> str | None:
    """The text is not the prompt's own."""
    own = runs_of_three(item.content)
    if not own or not item.evidence.template:
        return None
    flat = re.sub(r"\d+", "0", words.normal(item.content)).split()
    hits = [
        " ".join(flat[at : at + 3]) in item.evidence.template_runs for at in range(len(flat) - 2)
    ]
    longest = run = 0
    for hit in hits:
        run = run + 1 if hit else 0
        longest = max(longest, run)
    if sum(hits) >= 0.5 * len(hits) or longest >= 4:
        return "repeats the prompt's own words or example"
    return None


def check_statement(item: Item) -> str | None:
    """The text is a statement with a subject that can be understood alone."""
    if len(item.candidate.content) > MOST_CHARACTERS:
        return f"is longer than {MOST_CHARACTERS} characters"
    if item.content and (why := statement.find_junk(item.content)):
        return why
    if not item.content:
        return "is empty"
    if statement.has_the_user(item.content) and not _is_about_users(item.evidence):
        return "says 'the user'; give the person's name"
    return statement.find_fault(item.content, item.languages[0], item.evidence.speakers)


def _is_about_users(evidence: Evidence) -> bool:
    """Whether people themselves speak of "the user", as those who build something do."""
    return any(
        statement.has_the_user(message.text)
        for message in evidence.messages
        if message.author == "person"
    )


def check_relative_dates(item: Item) -> str | None:
    """No date is left that only the day it was said on explains."""
    if found := dates.find_relative(item.bare, dict.fromkeys((*item.languages, "en"))):
        return f"says '{found}'; give the date instead"
    return None


def check_secrets(item: Item) -> str | None:
    """No key, password, card number or account number is kept."""
    if kind := secrets.find_secret(item.content):
        return f"holds {kind}, which is not to be remembered"
    return None


def check_orders(item: Item) -> str | None:
    """Nothing orders the agent about in memory that others read."""
    if item.candidate.takes_orders:
        return None
    return orders.find_order(
        item.bare,
        item.evidence.agents,
        item.evidence.speakers,
        item.languages[0],
        is_shared=item.candidate.is_shared,
    )


#: All rules but those about sources and words, which yield more than a reason.
_RULES: dict[str, Callable[[Item], str | None]] = {
    "names": check_names,
    "numbers": check_numbers,
    "echo": check_echo,
    "statement": check_statement,
    "relative_dates": check_relative_dates,
    "secrets": check_secrets,
    "orders": check_orders,
}


def judge(
    candidate: Candidate,
    evidence: Evidence,
    settings: AcceptanceSettings,
    *,
    is_last: bool = False,
) -> Judgement:
    """Check an item against what was read. Pure: the same input gives the same judgement.

    Args:
        candidate: The item as the model wrote it.
        evidence: What the model was shown. Use one value for all items of a range: what is worked
            out of it is kept on it.
        settings: Which rules are on, and the limits of the rule about words.
        is_last: Whether the item was sent back before. An item between the two limits of the rule
            about words is then kept as weak; the first time it is a violation.
    """
    is_on = msgspec.structs.asdict(settings)
    content = candidate.content
    if is_on["statement"] and evidence.user and not _is_about_users(evidence):
        content = statement.name_the_user(content, evidence.user)
    item = Item(
        candidate=candidate,
        evidence=evidence,
        content=content[:MOST_CHARACTERS],
        sources=candidate.sources,
    )
    violations: list[Violation] = []
    sources = candidate.sources
    if is_on["sources"] and candidate.kind == "fact":
        sources, reason = check_sources(item)
        if reason:
            violations.append(Violation("sources", reason))
        item.sources = sources
    violations += (
        Violation(name, reason)
        for name, check in _RULES.items()
        if is_on[name] and (reason := check(item))
    )
    is_weak = False
    if is_on["words"]:
        share = share_said(item)
        is_weak = is_last and settings.words_reject <= share < settings.words_floor
        if share < settings.words_floor and not is_weak:
            violations.append(
                Violation(
                    "words", f"has {1 - share:.0%} of its words from nowhere in the conversation"
                )
            )
    return Judgement(
        content=content,
        sources=tuple(sources),
        violations=tuple(violations),
        is_weak=is_weak and not violations,
    )
