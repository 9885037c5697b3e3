"""Numbers in comparable form: 1,500 = 1.500 = 1 500 = 1.5k = "fifteen hundred".

An ambiguous number has several readings; two numbers agree if they share one. Number words exist
for a dozen languages. Evidence is read in all of them, an item only in its own language, since a
number in one language is an ordinary word in another ("due", "elf").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache

import msgspec

from edenmem.acceptance.reading.words import (
    Word,
    ascii_digits,
    base_of,
    fold,
    language_of,
    words_of,
)
from edenmem.acceptance.tables import pattern, rows, table, word_set

Readings = frozenset[float]


_NUMBER = re.compile(
    r"(?<![A-Za-zÀ-ʯͰ-ԯ\d])(?<!\d[.,])(?P<figures>\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d{1,2})?(?!\d)"
    r"|\d+(?:[.,]\d+)*)"
    r"(?P<scale>[ \-]?(?:[万萬億亿만억千천百]|[^\W\d_]{1,10}))?(?P<rest>\d千)?"
)
#: A word of letters and digits: a model, a version, an ID. Compared as written.
_MIXED = re.compile(r"[^\W_\uac00-\ud7a3]*(?:\d[^\W\d_]|[^\W\d_]\d)[^\W_\uac00-\ud7a3]*")

_TURKISH_ONE = re.compile(r"bir(?:i|e|de|den|in)")
_TENS = frozenset(map(float, range(20, 100, 10)))
_HAN_DIGITS = {
    sign: value
    for value, signs in enumerate(
        ("〇零", "一", "二两兩", "三", "四", "五", "六", "七", "八", "九")
    )
    for sign in signs
}
_HAN_SCALES = {
    "十": 10,
    "百": 100,
    "千": 1000,
    "万": 10_000,
    "萬": 10_000,
    "億": 100_000_000,
    "亿": 100_000_000,
}
_SPOKEN_DECIMAL = re.compile(
    "([零一二两三四五六七八九十百]{1,8})[米块塊公点點]([一二三四五六七八九]{1,2})"
)
_HAN_NUMBER = re.compile("[〇零一二两兩三四五六七八九十百千万萬億亿]{1,12}")


class Number(msgspec.Struct, frozen=True):
    """A number in a text: as written, its position, and its possible values."""

    written: str
    start: int
    end: int
    readings: Readings


def find_figures(text: str) -> Iterator[Number]:
    """Yield the numbers in digits. ``text`` comes from `ascii_digits`."""
    for match in _NUMBER.finditer(text):
        written = match["scale"] or ""
        name = fold(written.strip(" -"))
        scale = _scales().get(name)
        plain = _read(match["figures"])
        if scale is None or (written[0] in " -" and fold(written.strip(" -")) == "m"):
            end = match.end("figures")
            if written and written[0] not in " -" and _is_name_part(written):
                continue  # 3D, 4K: compared as it is written
            yield Number(match["figures"], match.start(), end, plain)
            continue
        rest = 1000 * int(match["rest"][0]) if match["rest"] else 0  # 2万8千
        scaled = frozenset(round(value * scale, 6) + rest for value in plain)
        sure = fold(written.strip(" -")) not in word_set("numbers.unsure_scales")
        yield Number(match.group(), match.start(), match.end(), scaled if sure else scaled | plain)


@cache
def _scales() -> dict[str, float]:
    """Return multipliers of numbers in digits: short forms, words for a thousand and more."""
    unsure = word_set("numbers.unsure_scales")
    words = {
        word: value
        for language in table("numbers.cardinals")
        for word, value in _table(language).items()
        if value in (1000.0, 1e5, 1e6, 1e9) and word not in unsure
    }
    return words | {word: float(value) for value, *some in rows("numbers.scales") for word in some}


def _is_name_part(letters: str) -> bool:
    return letters.isupper() and len(letters) <= 2


def find_mixed(text: str) -> list[str]:
    """Yield words of letters and digits ("gpt-4o", "A320"), folded. ``text`` has `ascii_digits`."""
    return [word.folded for word in words_of(text) if _MIXED.fullmatch(word.written)]


def _read(figures: str) -> Readings:
    """All that figures with points, commas, spaces or apostrophes may mean."""
    bare = re.sub(r"[ '’]", "", figures)
    if len(bare) > 40:
        return frozenset()
    marks = re.findall(r"[.,]", bare)
    readings: set[float] = set()
    if not marks:
        readings.add(float(bare))
        return frozenset(readings)
    groups = re.split(r"[.,]", bare)
    if (
        all(len(group) == 3 for group in groups[1:])
        and 1 <= len(groups[0]) <= 3
        and len(set(marks)) == 1
    ):
        readings.add(float("".join(groups)))
    if len(marks) == 1:
        readings.add(float(".".join(groups)))
    elif len(set(marks)) == 2 and marks[-1] not in marks[:-1]:
        readings.add(float("".join(groups[:-1]) + "." + groups[-1]))
    elif not readings:  # 192.168.0.1, 14.3.2026: each figure for itself
        readings |= {float(group) for group in groups}
    return frozenset(readings)


@cache
def _table(language: str) -> dict[str, float]:
    if language not in table("numbers.cardinals"):
        return {}
    entries = rows(f"numbers.cardinals.{language}")
    return {fold(word): float(value) for value, *some in entries for word in some}


@cache
def _ordinals() -> dict[str, float]:
    return {
        base_of(word): float(value)
        for language in table("numbers.ordinals")
        for value, *some in rows(f"numbers.ordinals.{language}")
        for word in some
    }


#: The start of a unit: "por cento".
_PER = re.compile(r"\b(?:por|per|pour) \Z", re.IGNORECASE)


def find_number_words(
    text: str, language: str, words: Sequence[Word] | None = None, *, is_lenient: bool = False
) -> Iterator[Number]:
    """Yield the numbers in words of a language; if lenient, with inflected endings."""
    table = _table(language)
    if not table:
        return
    run: list[tuple[Word, list[float]]] = []
    for word in words_of(text) if words is None else words:
        before = text[max(word.start - 6, 0) : word.start]
        is_unit = before[-2:] in ("r ", "R ") and _PER.search(before)
        values = [] if is_unit else _values_in(word.folded, language)
        if values and values[0] >= 100 and before.rstrip()[-1:].isdigit():
            values = []  # 187 mil: read with its figures
        if not values and is_lenient:
            values = _inflected(word.folded, language)
        joins = bool(run) and not text[run[-1][0].end : word.start].strip(" -‐\u00a0")
        if (
            joins
            and _last(run) in (_TENS | {10.0} if language == "tr" else _TENS)
            and (
                word.folded in word_set("numbers.ones")
                or (language == "tr" and _TURKISH_ONE.fullmatch(word.folded))
            )
        ):
            values = [1.0]
        if values and (not run or joins) and not _is_list(run, values):
            run.append((word, values))
        elif run and joins and word.folded in word_set("numbers.and") and run[-1][1]:
            run.append((word, []))
        elif run:
            yield _compose(text, run)
            run = [(word, values)] if values else []
    if run:
        yield _compose(text, run)


def _last(run: list[tuple[Word, list[float]]]) -> float:
    """Return the last value of a run, before an "and" or not."""
    return next((values[-1] for _, values in reversed(run) if values), 0.0)


def _is_list(run: list[tuple[Word, list[float]]], values: list[float]) -> bool:
    """Return whether "and" begins another number: "two and three", but "a hundred and three"."""
    return (
        len(run) > 1
        and not run[-1][1]
        and (run[-2][1][-1] < 100 and not (run[-2][1][-1] in _TENS and values[0] < 20))
    )


def _values(word: str, table: dict[str, float]) -> list[float]:
    """Return the values of a word, or of the parts of a compound ("zweiundzwanzig")."""
    if word in table:
        return [table[word]]
    if not 6 <= len(word) <= 40:
        return []
    values: list[float] = []
    at = 0
    while at < len(word):
        for end in range(len(word), at + 1, -1):
            if (part := word[at:end]) in table:
                values.append(table[part])
                at = end
                break
        else:
            for joint in ("und", "en", "e"):
                if values and word.startswith(joint, at):
                    at += len(joint)
                    break
            else:
                if not values and word.startswith("ein") and len(word) > 6:
                    values.append(1.0)
                    at += 3
                else:
                    return []
    return values if len(values) > 1 else []


@lru_cache(maxsize=20_000)
def _values_in(word: str, language: str) -> list[float]:
    return _values(word, _table(language))


@lru_cache(maxsize=20_000)
def _values_by_language(word: str) -> tuple[tuple[str, list[float]], ...]:
    """Return the values of a word, perhaps inflected, by language."""
    read = (
        (language, _values(word, _table(language)) or _inflected(word, language))
        for language in table("numbers.cardinals")
    )
    return tuple((language, values) for language, values in read if values)


def is_number_word(word: str, language: str) -> bool:
    """Return whether a folded word is a number word of a language."""
    return bool(_values(word, _table(language)))


@cache
def languages() -> frozenset[str]:
    """Return the languages with number words."""
    return frozenset({*table("numbers.cardinals"), "zh", "ja"})


def has_hidden_number(word: str, language: str) -> bool:
    """Return whether a folded word contains a number word but cannot be read as a number."""
    table = _table(language)
    return (
        len(word) > 5
        and any(len(name) > 4 and name in word for name in table)
        and not (_values(word, table) or _inflected(word, language))
    )


def _compose(text: str, run: list[tuple[Word, list[float]]]) -> Number:
    while run and not run[-1][1]:
        run.pop()
    total = current = 0.0
    for word, values in run:
        for value in values:
            if value >= 100 and value in (100, 1000, 1e5, 1e6, 1e9):
                current = max(current, 1.0) * value
                if value >= 1000:
                    total, current = total + current, 0.0
            elif (
                value == 12
                and 1 < current < 100
                and word.folded.startswith(rows("numbers.dozens")[0])
            ):
                current *= 12
            elif value == 20 and current % 100 == 4 and word.folded.startswith("vingt"):
                current += 76
            else:
                current += value
    start, end = run[0][0].start, run[-1][0].end
    readings = {total + current}
    parts = [value for _, values in run for value in values]
    if len(parts) == 2 and parts[0] < 100 and 10 <= parts[1] < 100:  # five fifty
        readings.add(parts[0] + parts[1] / 100)
    flat = [value for _, values in run for value in values]
    if 2 <= len(flat) <= 3 and 10 <= flat[0] <= 20 <= flat[1] < 100:  # nineteen seventy-two
        readings.add(flat[0] * 100 + sum(flat[1:]))
    return Number(text[start:end], start, end, frozenset(readings))


#: The word or sign after a number, unless another number follows ("5 to 8").
_UNIT = re.compile(r"[ \u00a0]?([^\W\d_]{1,20}|[%€$£])(?!\s?\d|[^\W\d_])")


def unit_after(text: str, end: int) -> str | None:
    """Return the word or sign after a number that ends at ``end``, folded; None without one."""
    match = _UNIT.match(text, end)
    return fold(match[1]) if match else None


def find_han_numbers(text: str) -> Iterator[Number]:
    """Yield the numbers in ideographs that count something."""
    for match in _HAN_NUMBER.finditer(text):
        if text[max(match.start() - 1, 0) : match.start()].isdecimal():
            continue  # 7万: read with its figures
        if pattern("numbers.counted").match(text, match.end()) or len(match.group()) > 1:
            value = _han_value(match.group())
            yield Number(match.group(), match.start(), match.end(), value)


def _han_value(signs: str) -> Readings:
    if not any(sign in _HAN_SCALES for sign in signs):
        return frozenset({float("".join(str(_HAN_DIGITS[sign]) for sign in signs))})
    total = section = digit = 0
    last = 1
    for sign in signs:
        if sign in _HAN_DIGITS:
            digit = _HAN_DIGITS[sign]
            continue
        scale = last = _HAN_SCALES[sign]
        if scale >= 10_000:
            total, section, digit = (total + section + digit or 1) * scale, 0, 0
        else:
            section, digit = section + (digit or 1) * scale, 0
    short = total + section + digit * last // 10  # 一千五 is 1500 in speech
    return frozenset({float(total + section + digit), float(short)})


#: Joined digits; and those that form one number, whose parts have no meaning alone.
_JOINED = re.compile(r"\d(?:[\d.,:/-]*\d)?")
_ONE_NUMBER = re.compile(r"\d+(?:[.,]\d+)?|\d{1,3}(?:[.,]\d{3})+(?:[.,]\d+)?")


_SHORT = re.compile(r"(?<![\d.,])(\d{1,3})k\b", re.IGNORECASE)
_TENTHS = re.compile("([一二三四五六七八九])割")


def spoken_decimals(text: str) -> list[float]:
    """Return the decimals that a Chinese text writes in ideographs: 一米七八, 一百零二点五."""
    return [
        float(f"{a:.0f}.{b:.0f}")
        for match in _SPOKEN_DECIMAL.finditer(text)
        for a in _han_value(match[1])
        for b in _han_value(match[2])
    ]


def count_things(text: str) -> frozenset[float]:
    """Return the numbers of a text, each in its likeliest reading."""
    digits = ascii_digits(text)
    found = [max(number.readings) for number in find_figures(digits) if number.readings]
    language = language_of(text)
    found += [max(number.readings) for number in find_number_words(text, language, is_lenient=True)]
    if language in ("zh", "ja"):
        found += [max(number.readings) for number in find_han_numbers(text)]
        found += spoken_decimals(text)
    return frozenset(found)


def said_numbers(texts: Iterable[str]) -> frozenset[float]:
    """Return all possible values of the numbers in texts, in digits or in words of any language."""
    found: set[float] = set()
    for text in texts:
        digits = ascii_digits(text)
        for number in find_figures(digits):
            found |= number.readings
        found |= {float(match[1]) for match in _SHORT.finditer(digits)}  # 32k: or kilometers
        found |= {
            10.0 * value for match in _TENTHS.finditer(text) for value in _han_value(match[1])
        }
        if pattern("numbers.half_year").search(text):
            found.add(6.0)
        for match in _JOINED.finditer(digits):
            is_one = _ONE_NUMBER.fullmatch(match.group())
            for part in () if is_one else re.findall(r"\d{1,15}", match.group()):
                found.add(float(part))
        found.update(spoken_decimals(text))
        for match in _HAN_NUMBER.finditer(text):
            found |= _han_value(match.group())
        words = words_of(text)
        folded = {word.folded for word in words}
        ordinals = _ordinals()
        placed = {ordinals[word] for word in folded & ordinals.keys()}
        placed |= {
            value
            for word in folded
            if (ordinal := _GERMAN_ORDINAL.fullmatch(word))
            for value in _read_one(ordinal[1], "de")
        }
        found |= placed
        spoken = set[str]()
        for word in folded:
            if word.isdigit():
                continue
            for language, values in _values_by_language(word):
                spoken.add(language)
                found.update(values)
        for language in spoken:
            for number in find_number_words(text, language, words, is_lenient=True):
                found |= number.readings
        found |= {ten + one for ten in found & _TENS for one in placed if one < 10}
        found |= _fractions(text, folded, found)
    return frozenset(found)


@lru_cache(maxsize=20_000)
def _inflected(word: str, language: str) -> list[float]:
    """Return the value of an inflected number word ("dokuzda", "dwudziestu")."""
    if language not in table("numbers.stems"):
        return []
    stems = _stems(language)
    bare = word
    for end in range(len(bare), max(len(bare) - 4, 2) - 1, -1):
        if bare[:end] in stems:
            return [stems[bare[:end]]]
    return []


#: "zwanzigster", "einundzwanzigsten".
_GERMAN_ORDINAL = re.compile(r"(\w{3,30}?)s?te[nrs]?")


def _read_one(word: str, language: str) -> list[float]:
    values = _values(word, _table(language))
    return [sum(values)] if values else []


@cache
def _stems(language: str) -> dict[str, float]:
    found = {word: value for word, value in _table(language).items() if len(word) >= 3}
    return found | {fold(stem): float(value) for value, stem in rows(f"numbers.stems.{language}")}


@cache
def _half() -> frozenset[str]:
    return frozenset(map(fold, word_set("numbers.half")))


def _fractions(text: str, folded: frozenset[str] | set[str], found: set[float]) -> set[float]:
    """Return halves and decimals in words: "half a million", "point seven eight", "doze e meio"."""
    more: set[float] = set()
    if folded & _half() or "半" in text or "½" in text or "반" in text:
        more |= {0.5, 50.0, 500.0, 500_000.0, 30.0}
        more |= {value + 0.5 for value in found if value < 1000}
        more |= {
            (value + 0.5) * scale for value in found if value < 100 for scale in (1e2, 1e3, 1e6)
        }
    if folded & word_set("numbers.one_and_a_half"):
        more |= {1.5, 1500.0, 1_500_000.0}
    if folded & word_set("numbers.quarter"):
        more |= {0.25, 25.0, 15.0}
    for match in pattern("numbers.point").finditer(text):
        whole, rest = match["whole"] or "zero", match["rest"].split()
        for language in table("numbers.cardinals"):
            digits = _digits(language)
            places = [digits.get(fold(word)) for word in rest]
            if places[0] is None:
                continue
            decimals = "".join(str(int(value)) for value in places if value is not None)
            start = int((_table(language) | digits).get(fold(whole.strip()), 0.0))
            more |= {float(f"{start}.{decimals}"), float(f"{start}.{decimals[:1]}")}
    return more


@cache
def _digits(language: str) -> dict[str, float]:
    """Return the words of a language for one digit, including zero and one."""
    spoken = {word: float(value) for value, *some in rows("numbers.spoken") for word in some}
    return {word: value for word, value in (_table(language) | spoken).items() if value < 10}
