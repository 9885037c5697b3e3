"""Find secrets: keys, passwords named as such, card and account numbers.

IDs, hashes and wallet addresses are public by nature and not secret.
"""

from __future__ import annotations

import re
import unicodedata

from edenmem.acceptance.reading.words import ascii_digits, fold, language_of, stop_words
from edenmem.acceptance.tables import pattern, word_set

_I = re.IGNORECASE


_VALUE = re.compile(
    r"[\"'“”„«»「」『』`]?(?P<value>[^\s\"“”„«»「」『』`,;，。、]{1,100})[\"'“”„«»「」『』`]?"
)
_QUOTED_VALUE = re.compile(r"\s*[\"'“„«「『`](?P<value>[^\"“”„«»「」『』`]{3,120})[\"'”“»」』`]")
_PHRASE = re.compile(
    r"(?:(?:\d{1,2}[.)]? ?)?[a-z]{3,10}[ ,]+){5,}(?:\d{1,2}[.)]? ?)?[a-z]{3,10}", _I
)


#: What precedes an opaque value; other values after it are not secret.
_OPAQUE = re.compile(
    r"(?<!public )(?<![^\W_])(?:secrets?|keys?|tokens?)(?![^\W_])[^.!?]{0,40}?(?:[:=]| is| are)"
    r" ?[\"'`]?(?P<value>(?!0x)[A-Za-z0-9+/_=-]{16,200})",
    _I,
)
_SOCIAL_NUMBER = re.compile(r"(?<!\d)\d(?:[ .-]?\d){8,14}(?!\d)")

#: Also with dots or slashes, if grouped as on a card.
_CARD = re.compile(
    r"(?<![\d.])\d(?:[ -]?\d){12,18}(?!\d)"
    r"|(?<!\d)\d{4}[./_·–][\d./_·–]{9,18}(?!\d)"
)
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Z0-9])", _I)
#: Prefixes and lengths of the large card networks (ISO/IEC 7812 ranges, as published).
_CARD_PREFIXES = (
    (re.compile(r"4"), (13, 16, 19)),
    (re.compile(r"5[1-5]|2(?:2[2-9]|[3-6]|7[01]|720)"), (16,)),
    (re.compile(r"3[47]"), (15,)),
    (re.compile(r"3(?:0[0-5]|[689])"), (14, 16, 19)),
    (re.compile(r"6(?:011|4[4-9]|5)|62|81"), (16, 17, 18, 19)),
    (re.compile(r"35(?:2[89]|[3-8])"), (16, 17, 18, 19)),
    (re.compile(r"5018|5020|5038|5893|6304|6759|676[1-3]"), (12, 13, 14, 15, 16, 17, 18, 19)),
    (re.compile(r"220[0-4]"), (16, 17, 18, 19)),
)


def find_secret(text: str) -> str | None:
    """Return the kind of secret in a text, without quoting it; None without one."""
    text = unicodedata.normalize("NFKC", text)
    if pattern("secrets.keys").search(text):
        return "an access key"
    if any(_is_card(re.sub(r"\D", "", match.group())) for match in _CARD.finditer(text)):
        return "a card number"
    if any(_is_iban(match.group()) for match in _IBAN.finditer(text)):
        return "a bank account number"
    if pattern("secrets.social").search(text) and _SOCIAL_NUMBER.search(text):
        return "a social security number"
    return "a password or code" if _has_named_secret(text) else None


_SAID_VALUE = re.compile(r"[^\s\"'“”„«»「」『』`,;:，。、؛،()]{3,60}")
#: Maximum distance in characters between a name and its value.
_NAME_NEAR = 45


def flatten(text: str) -> str:
    """Return ``text`` in lower case with ASCII digits, as values are searched in it."""
    return ascii_digits(text).casefold()


def said_values(text: str) -> frozenset[str]:
    """Return the passwords, codes and similar values that a message contains."""
    flat = flatten(text)
    found = set()
    for match in _SAID_VALUE.finditer(flat):
        if match.group().isalpha():
            continue  # no code, as most words
        value = re.sub(r"[^\x21-\x7e\w]+\Z|[.!?]+\Z", "", match.group())
        value = re.split(r"[\u3040-\u30ff\u3400-\u9fff\u0e01-\u0e4f]+\Z", value)[0]
        before = flat[max(match.start() - _NAME_NEAR, 0) : match.start()]
        before = re.split(r"[.!?。！？](?=\s|\Z)", before)[-1]
        is_strict = bool(pattern("secrets.named").search(before))
        is_locked = is_strict or pattern("secrets.locked").search(before)
        is_login = not value.isalnum() and pattern("secrets.login").search(before)
        if (is_locked or is_login) and _is_code(value, is_strict=is_strict):
            found.add(value)
    return frozenset(found)


def _is_code(value: str, *, is_strict: bool) -> bool:
    """Return whether a word looks like a code: digits alone, or with letters or signs."""
    digits = sum(sign.isdigit() for sign in value)
    if re.fullmatch(r"\d+(?:-\d+)*", value):
        return 4 <= digits <= 10 or (digits >= 3 and "-" in value)
    if re.fullmatch(r"\d{4,8}[a-z]", value):  # more digits than a quantity with its unit
        return True
    if re.fullmatch(r"[^\W\d_]+[-']?|\d+(?:[.,:]\d+)+|\d+[^\W\d_]{1,3}|v?\d+(?:\.\d+)+", value):
        return False
    signs = sum(not sign.isalnum() and sign not in "-'’./" for sign in value)
    return len(value) >= 5 and bool(
        digits >= 2 or (signs >= 1 and digits >= 1) or (is_strict and signs)
    )


def _has_named_secret(text: str) -> bool:
    if any(_is_cryptic(match["value"]) for match in _OPAQUE.finditer(text)):
        return True
    if any(_is_cryptic(match["value"]) for match in pattern("secrets.opens").finditer(text)):
        return True
    for match in pattern("secrets.pair").finditer(text):
        is_login = "/" in match["by"] or fold(match["user"]) in word_set("secrets.admin")
        if is_login or _is_cryptic(match["value"]):
            return True
    names = list(pattern("secrets.named").finditer(text))
    if not names:
        return False
    language = language_of(text)
    common = word_set("secrets.about") | stop_words("en") | stop_words(language)
    return any(
        _is_revealed(text[match.end() : match.end() + 300], text[: match.start()][-80:], common)
        for match in names
    )


def _is_revealed(rest: str, before: str, common: frozenset[str]) -> bool:
    """Return whether the words around "password" reveal it."""
    if quoted := _QUOTED_VALUE.match(rest):
        return " " not in quoted["value"] or bool(_PHRASE.search(quoted["value"]))
    if (
        bare := re.match(
            r"\s?(?:\([^)]{0,40}\)\s)?(?:code\s|number\s|nummer\s)?\s?(?P<value>[^\s,;.]{3,40})",
            rest,
        )
    ) and _is_cryptic(bare["value"]):
        return True
    is_thing = bool(
        pattern("secrets.thing").match(rest) or pattern("secrets.thing_before").search(before)
    )
    if not is_thing and _is_revealed_before(before, common):
        return True
    clause = re.match(r"[^.!?。！？]{0,80}", rest)
    end = clause.end() if clause else 0
    return any(
        _is_value(rest[link.end() :], common, link.group().strip(), is_thing=is_thing)
        for link in pattern("secrets.link").finditer(rest, 0, end)
    )


def _is_revealed_before(before: str, common: frozenset[str]) -> bool:
    """Return whether the value precedes the name: "hunter2 is Anna's password"."""
    clause = re.split(r"[.!?;] ", before)[-1]
    for match in pattern("secrets.value_first").finditer(clause):
        value = match["value"].strip("\"'“”„«»`,")
        between = clause[match.end() :]
        if _is_cryptic(value) and between.count(" ") <= 4:
            return True
        if not pattern("secrets.owned").match(clause, match.end()) or fold(value) in common:
            continue
        if fold(match["link"]) in ("as", "als", "comme", "como", "come", "jako", "som"):
            return True
        ahead = [fold(word) for word in clause[: match.start()].split()]
        if between and (not ahead or (len(ahead) >= 2 and not common.intersection(ahead))):
            return True
    return False


def _is_value(tail: str, common: frozenset[str], link: str, *, is_thing: bool) -> bool:
    """Return whether the text after "is" is a secret, rather than a remark about one."""
    value = _VALUE.match(tail)
    if value is None:
        return False
    said = value["value"].rstrip(".!?।")
    if _is_cryptic(said):
        return fold(said) not in word_set("secrets.thing_names")
    if is_thing:
        return False
    if _QUOTED_VALUE.match(tail) or _PHRASE.match(tail):
        return True
    if link == "to":
        return False
    if not tail[value.end() :].strip(" .!?。！？)"):
        return len(said) > 2 and said.casefold() not in word_set("secrets.about")
    words = [fold(word) for word in re.split(r"[.!?,;。！？]", tail, maxsplit=1)[0].split()]
    said_so = [word for word in words if word not in common and not word.endswith(_ENDINGS)]
    left = sum(word in common and word not in word_set("secrets.about") for word in words)
    return len(words) <= 12 and len(said_so) >= 2 + left and left <= 1


#: Endings of descriptions: "rarely changed", "expiring".
_ENDINGS = ("ed", "ing", "ly", "able")


def _is_cryptic(value: str) -> bool:
    """Return whether a word looks unguessable: letters with digits, or mixed signs."""
    bare = value.strip("\"'“”„«»()[].,;:!?。")
    if len(bare) < 3 or bare.startswith(("http://", "https://")):
        return False
    digits = sum(sign.isdigit() for sign in bare)
    if digits == len(bare):
        return 3 <= digits <= 12
    letters = sum(sign.isalpha() for sign in bare)
    signs = len(bare) - digits - letters - bare.count("-") - bare.count("'") - bare.count("’")
    if digits and letters:
        return not re.fullmatch(
            r"\d+(?:st|nd|rd|th|h|am|pm|er|e|x|-\w+)|\w+-\d{4}|\d{4}-\d\d-\d\d", bare
        )
    return letters >= 3 and signs >= 1 and "/" not in bare


def _is_card(digits: str) -> bool:
    known = any(
        len(digits) in lengths and prefix.match(digits) for prefix, lengths in _CARD_PREFIXES
    )
    return known and len(set(digits)) > 1 and _luhn(digits)


def _luhn(digits: str) -> bool:
    """Return whether the check digit of ISO/IEC 7812-1 (Luhn) is valid."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _is_iban(written: str) -> bool:
    """Return whether the check digits of ISO 13616 (mod 97) are valid; a word may follow."""
    groups = written.upper().split()
    while groups:
        number = "".join(groups)
        if not 15 <= len(number) <= 34:
            groups.pop()
            continue
        moved = number[4:] + number[:4]
        if int("".join(str(int(sign, 36)) for sign in moved)) % 97 == 1:
            return True
        groups.pop()
    return False
