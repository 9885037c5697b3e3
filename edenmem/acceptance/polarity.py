"""Whether a text denies something, and whether an item leaves a denial of its sources out."""

from __future__ import annotations

import re
from collections.abc import Collection

from edenmem.acceptance.item import Item

#: Words that deny, by language.
_NEGATIONS = {
    "en": r"no|not|never|\w*n['’]t|cannot|without|none|nobody|nothing|neither|nor|hardly",
    "de": r"nicht|kein\w*|nie|niemals|ohne|nein|nix|niemand|weder|nichts",
    "fr": r"ne|n['’]\w+|pas|jamais|sans|aucun\w*|rien",
    "es": r"no|nunca|sin|jamás|tampoco|ningun\w*|ningún|nada|ni",
    "it": r"non|mai|senza|nessun\w*|niente|né|no",
    "pt": r"não|nunca|sem|nem|nenhum\w*|nada|jamais",
    "nl": r"niet|geen|nooit|zonder|nee|niets|niemand",
    "pl": r"nie|nigdy|bez|nic|żaden|nikt",
    "sv": r"inte|aldrig|utan|ingen|inget|inga|ej|nej",
    "ru": r"не|нет|никогда|без|ни|нельзя|никто|ничего",
    "uk": r"не|немає|ніколи|без|ні|ніхто|нічого",
    "tr": r"değil|yok|hiç|asla|\w+m[ae]z|\w+m[ıiuü]yor\w*|\w+m[ae]d[ıi]\w*",
    "ar": r"و?لا|و?ليس\w*|لم|لن|غير|بدون|دون",
    "hi": r"नहीं|ना|मत|बिना",
}
_NEGATION = {
    language: re.compile(rf"(?<![\w\u0900-\u0963])(?:{words})(?![\w\u0900-\u0963])", re.IGNORECASE)
    for language, words in _NEGATIONS.items()
} | {
    "zh": re.compile("(?<![要是能可对])不(?![错过])|[没沒無无别未]"),
    "ja": re.compile("ない|ません|なかった|ず(?=、|に)|無し|なし|だめ|嫌"),
    "ko": re.compile("않|없|못|안 |아니"),
    "th": re.compile("ไม่"),
}
_NO = re.compile(
    r"\W*(?:no|nope|nah|not|never|wrong|nein|nicht|nie|non|pas|jamais|nunca|não|nee|niet|nie|nej"
    r"|inte|нет|не|неа|ні|hayır|yok|değil|لا|नहीं|ना)(?![^\W_])"
    r"|\W*(?:不|没|いいえ|いや|違|아니|ไม่)",
    re.IGNORECASE,
)
#: Words that deny nothing where they stand like this.
_NO_DENIAL = re.compile(
    r"\b(?:sin (?:falta|duda)|nada m[aá]s|no (?:doubt|matter|later|longer than|more than|solo|sólo)|not only"
    r"|non solo|nicht nur|ohne weiteres|sans (?:doute|faute)|não só|nie tylko|не только|en panne)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[.,:;!?…](?=\s|\Z)|,(?=[\u3400-\u9fff])|[。、，；！？：؟،\n]|\s[-–—]\s")
#: The share of an item that one clause must hold, and the least words, for it to be compared.
_COMPARED = 0.5
_LEAST = 2


def is_no(reply: str) -> bool:
    """Whether a reply begins with "no"."""
    return bool(_NO.match(reply))


def is_negated(text: str, language: str) -> bool:
    """Whether a text of a language denies something."""
    pattern = _NEGATION.get(language)
    return bool(pattern and pattern.search(_NO_DENIAL.sub(" ", text)))


def clauses_of(text: str) -> list[str]:
    """The clauses of a text."""
    return [clause for clause in _CLAUSE.split(text) if clause.strip()]


def is_opposite(item: Item, places: Collection[int]) -> bool:
    """Whether an item does not deny what the clause that holds most of it denies."""
    if is_negated(item.content, item.languages[0]):
        return False
    evidence = item.evidence
    best, negated = 0, list[bool]()
    for place in places:
        for clause in clauses_of(evidence.messages[place].text):
            held = item.count_shared(clause)
            if held > best:
                best, negated = held, []
            if held == best:
                negated.append(is_negated(clause, evidence.language))
    return best >= max(_LEAST, _COMPARED * item.size) and all(negated)
