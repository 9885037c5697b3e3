"""Find secrets: keys, passwords named as such, card and account numbers.

IDs, hashes and wallet addresses are public by nature and not secret. Card and account numbers are
validated by python-stdnum. detect-secrets was tried for keys: it loads for 0.2 s, needs an HTTP
client, and knows fewer issuers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from edenmem.acceptance.texts import lower, pattern, word_set

#: Keys and tokens, in the published forms of their issuers.
_KEY = pattern("secrets.key")
#: Names of secrets in the main languages.
_NAME = pattern("secrets.name", re.NOFLAG)
#: A username with a password.
_LOGIN = pattern("secrets.login", re.NOFLAG)
#: Words of remarks about a password, which do not reveal it.
_REMARK = word_set("secrets.remark")
#: Secrets that may consist of plain words.
_WORDY = pattern("secrets.wordy")
#: A plain word before the name: "sunflower as the password", "Sunflower is Anna's password".
_BEFORE = re.compile(
    r"(?P<value>[^\W\d_]{4,})(?: as (?:the|a|her|his|their) (?:\w+ )?)\Z"
    r"|\A(?P<first>[^\W\d_]{4,}) is \S+['’]s (?:\w+ )?\Z",
    re.IGNORECASE,
)
_DESCRIBES = ("ed", "ing", "ly")
_MOST_WORDS = 12
#: Words that make the name before them a thing or a rule, not a secret.
_THING = pattern("secrets.thing")
#: Names of codes and things that are no secrets: a password manager, a postal code.
_PUBLIC = pattern("secrets.public")
_LINK = pattern("secrets.link")
_VALUE = re.compile(r"[^\s\"'“”„«»「」『』`,;:，。、؛،()（）]{3,100}")
_QUOTED = re.compile(r"[\"“„«「『`'](?P<value>[^\"“”„«»「」『』`]{3,120})[\"'”“»」』`]")
_OPAQUE = re.compile(
    r"(?i:secret|key|token)[^.!?]{0,40}?\b(?!0x)(?=\S*\d)"
    r"(?:[A-Za-z0-9+/_=-]{20,200}|(?=\S*[a-z])(?=\S*[A-Z])[A-Za-z0-9_]{12,20}\b)"
)
_CARD = re.compile(r"\d(?<![\d.].)(?:[ .–/-]?\d){11,18}(?!\d)")
#: An account number from its check digits on; the two letters of its country are before it.
_IBAN = re.compile(r"\d\d(?<=\b[A-Z]{2}..)(?: ?[A-Z0-9]{2,4}){3,8}(?![A-Z0-9])", re.IGNORECASE)
#: Prefixes and lengths of the large card networks (ISO/IEC 7812 ranges, as published).
_NETWORK = re.compile(
    r"4\d{12}(?:\d{3})?(?:\d{3})?|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3(?:0|6|8|9)\d{12,14}"
    r"|(?:6(?:011|4|5)|62|81|35|220)\d+|(?:50|56|57|58|6[37])\d{10,17}"
)
_CLAUSE_END = re.compile(r"[.!?。！？](?=\s|\Z)|\n")
#: Quantities, years, dates, times, ordinals and versions are no codes.
_HARMLESS = re.compile(
    r"(?:19|20)\d\d|\d+(?:st|nd|rd|th|h|am|pm|er|e|x|k|m|km|cm|mm|kg|g|gb|mb|ghz|mhz|%)"
    r"|\d{4}-\d\d-\d\d|v?\d+(?:\.\d+)+|\d+[.,:/]\d+(?:[.,:/]\d+)?|[a-z]+-(?:19|20)\d\d"
    r"|\d{1,2}-[a-z]+|https?://.*|1password\w*|keepass\w*|[a-z]{1,3}\d|\w+['’]\w+|[a-z]+-\d",
    re.IGNORECASE,
)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_UNIT_AFTER = pattern("secrets.unit_after")
#: How far a value may be from its name, in characters.
_NEAR = 60


def _visible(text: str) -> str:
    """Return a text in compatible letters, without signs that show nothing and part a word."""
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))


def find_secret(text: str) -> str | None:
    """Return the kind of secret in a text, without quoting it; None without one."""
    text = _visible(text)
    if _KEY.search(text):
        return "an access key"
    if any(_is_card(re.sub(r"\D", "", match.group())) for match in _CARD.finditer(text)):
        return "a card number"
    if any(_is_iban(text[match.start() - 2 : match.end()]) for match in _IBAN.finditer(text)):
        return "a bank account number"
    if _OPAQUE.search(text):
        return "an access key"
    return "a password or code" if any(named_values(text)) else None


def named_values(text: str) -> Iterator[str]:
    """Yield the values that a text calls a password, a code or the like, in lower case."""
    text = _visible(text)
    lowered = lower(text)
    for name in _NAME.finditer(lowered):
        before = _CLAUSE_END.split(text[max(name.start() - _NEAR, 0) : name.start()])[-1]
        if _THING.match(text, name.end()) or _PUBLIC.search(before + name.group()):
            continue
        rest = _CLAUSE_END.split(text[name.end() : name.end() + 200])[0]
        after = list(_values_in(rest[:_NEAR], is_after=True))
        yield from after or _values_in(before, is_after=False)
        if _WORDY.search(name.group()) and (word := _BEFORE.search(before)):
            yield (word["value"] or word["first"]).casefold()
        link = _LINK.search(rest[:_NEAR])
        if link is None:
            continue
        value = rest[link.end() :].strip()
        if quoted := _QUOTED.match(value):
            yield quoted["value"].casefold()
        elif _is_phrase(value) and _WORDY.search(name.group()):  # the codes of locks are digits
            yield value.rstrip(".!? ").casefold()
    for login in _LOGIN.finditer(lowered):
        if looks_like_code(login["value"].rstrip(".!?")):
            yield login["value"].rstrip(".!?").casefold()


def _is_phrase(value: str) -> bool:
    """Return whether plain words after "the password is" are the password, and no remark."""
    words = value.rstrip(".!? ").casefold().split()
    return 0 < len(words) <= _MOST_WORDS and not any(
        word.strip(",;") in _REMARK or word.endswith(_DESCRIBES) or len(word) < 3 for word in words
    )


def _values_in(part: str, *, is_after: bool) -> Iterator[str]:
    for match in _VALUE.finditer(part):
        value = match.group().rstrip(".!?-").strip("*")
        if is_after and _UNIT_AFTER.match(part, match.end()):
            continue
        if looks_like_code(value):
            yield value.casefold()


def looks_like_code(value: str) -> bool:
    """Check whether a word looks unguessable: digits, letters with digits, or mixed signs."""
    if value.isalpha() or _HARMLESS.fullmatch(value):
        return False
    digits = sum(sign.isdigit() for sign in value)
    letters = sum(sign.isalpha() for sign in value)
    signs = len(value) - digits - letters - value.count("-") - value.count("'") - value.count("’")
    if digits == len(value.replace("-", "").replace("#", "").replace("*", "")):
        return 3 <= digits <= 12
    return bool(
        (digits and letters and len(value) >= 4) or (letters >= 3 and signs and "/" not in value)
    )


def _is_card(digits: str) -> bool:
    from stdnum import luhn  # loaded for the few texts with such a number

    return bool(_NETWORK.fullmatch(digits)) and len(set(digits)) > 1 and luhn.is_valid(digits)


def _is_iban(written: str) -> bool:
    from stdnum import iban

    groups = written.upper().split()
    while groups:  # a word may follow
        if iban.is_valid("".join(groups)):
            return True
        groups.pop()
    return False
