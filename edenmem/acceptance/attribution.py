"""Whom an item is about, and whom the words that it comes from are about."""

from __future__ import annotations

import re
from collections.abc import Collection

from edenmem.acceptance import words
from edenmem.acceptance.item import Item
from edenmem.acceptance.polarity import clauses_of

_VOCATIVE = re.compile(r"(?<!\w)يا \w+")
_TITLES = words.word_set(
    "dr mr mrs ms miss sir frau herr dona don mevrouw meneer madame monsieur"
    " van von der den ten de la le du di da do dos das el bin al ibn"
)
#: Words by which the writer of a message speaks of themselves, by language.
_SELVES = {
    "en": "i|i['’](?:m|ve|d|ll)|me|my|mine|myself",
    "de": "ich|mir|mich|mein(?:e|en|em|er|es)?",
    "fr": "je|moi|mon|ma|mes|j['’]\\w+",
    "es": "yo|mi|mis|me|conmigo",
    "it": "io|mio|mia|miei|mie",
    "pt": "eu|meu|minha|meus|minhas|comigo",
    "nl": "ik|mij|mijn",
    "pl": "ja|mój|moja|moje|moją|mnie",
    "sv": "jag|mig|min|mina|mitt",
    "ru": "я|мне|меня|мной|мой|моя|моё|мои|моей|моего",
    "uk": "я|мені|мене|мій|моя|моє|мої",
    "tr": "ben|benim|bana|beni",
    "ar": "أنا",
    "hi": "मैं|मैंने|मुझे|मेरा|मेरी|मेरे",
}
_SELF = {
    language: re.compile(rf"(?<![\w'’-])(?:{own})(?![\w\u0900-\u0903\u093a-\u094f-])", re.I)
    for language, own in _SELVES.items()
}
_SELF_UNSPACED = re.compile("(?<!自)我(?![国们])|私(?!たち)|僕(?!たち|ら)|俺(?!たち|ら)")


#: Words by which people speak of those who are not named: family, and some others.
_KIN = re.compile(
    r"(?<![^\W_])(?:m[uo]m(?:my)?|mother|dad(?:dy)?|father|grand\w+|gran|nan|sister|brother|son|daughter|uncle"
    r"|aunt|cousin|nephew|niece|husband|wife|partner|in-laws?|miss|sir|coach|boss|kids?|twins"
    r"|mutter|mama|vater|papa|oma|opa|groß\w+|schwester|bruder|sohn|tochter|onkel|tante|mann|frau|kind\w*|chef\w*"
    r"|mère|maman|père|mamie|papi|papy|sœur|soeur|frère|fils|fille|oncle|mari|femme"
    r"|madre|mamá|padre|papá|aita|ama|abuel[oa]s?|herman[oa]s?|hij[oa]s?|tí[oa]s?|marido|mujer|jefe"
    r"|mamma|papà|babbo|nonn[oa]|sorella|fratello|figli[oa]|zi[oa]|marito|moglie"
    r"|mãe|pai|av[óô]|vó|vô|irmã|irmão|filh[oa]|ti[oa]|marido|mulher"
    r"|moeder|vader|oma|opa|zus|broer|zoon|dochter|oom|man|vrouw"
    r"|mam[aąyie]+|tat[aąyo]+|babci\w*|dziad\w*|siostr\w+|brat\w*|syn\w*|córk\w+|mąż|żon\w+"
    r"|mamma|pappa|mormor|farmor|morfar|farfar|syster|bror|son|dotter|fru"
    r"|мам\w*|пап\w*|бабушк\w+|дедушк\w+|дед\w*|сестр\w+|брат\w*|сын\w*|доч\w+|муж\w*|жен\w+|тёт\w+|дяд\w+"
    r"|ann\w+|baba\w*|dede\w*|nine\w*|kardeş\w*|abla\w*|abi\w*|oğl\w+|kız\w+|eş\w+)(?![^\W_])"
    r"|أم[يه]|أب[يو]|والد|جد[تي]|أخت|أخ[يو]|ابن|خال|عم[يت]|زوج|माँ|मां|माता|पिता|पापा|दाद|नान|बहन|भाई|बेट|पति|पत्नी|चाच|माम"
    r"|母|父|妈|媽|爸|奶|爷|姐|妹|哥|弟|儿子|女儿|丈夫|妻|老公|老婆|祖|姉|兄|息子|娘|夫|エマ|엄마|아빠|어머니|아버지|할머니|할아버지|누나|언니|오빠|형|동생|아들|딸|남편|아내",
    re.IGNORECASE,
)


def find_other_person(item: Item, places: Collection[int]) -> str | None:
    """The person whom an item's sources are about, where the item is about others; else None.

    The clauses that hold most of the item decide: they are about the people whom they name, and
    about their writer if the writer says "I". A clause that tells neither decides nothing. Whoever
    it is, an item is about somebody who wrote its sources, or whom they or the messages before
    them name.
    """
    people = _parts_of_names(item)
    subjects = _named(item.content, people)
    if len(people) < 2 or not subjects:
        return None
    if writer := _find_stranger(item, places, people, subjects):
        return writer
    best, referred = 0, list[set[str]]()
    for place in places:
        message = item.evidence.messages[place]
        for clause in clauses_of(message.text):
            score = item.count_shared(clause)
            if score < max(best, 1):
                continue
            referred = referred if score == best else []
            best = score
            about = _named(_VOCATIVE.sub(" ", clause), people)
            own_words = _SELF.get(item.evidence.language, _SELF_UNSPACED)
            if message.author == "person" and own_words.search(clause):
                about.add(message.speaker)
            referred.append(about)
    if not referred or any(not about or about & subjects for about in referred):
        return None
    return min(referred[0])


def _find_stranger(
    item: Item, places: Collection[int], people: dict[str, set[str]], subjects: set[str]
) -> str | None:
    """Who wrote an item's sources, where those do not have to do with the people it is about."""
    messages = item.evidence.messages
    writers, named = set[str](), set[str]()
    for place in places:
        if messages[place].author != "person":
            return None
        writers.add(messages[place].speaker)
        for near in range(max(place - 2, 0), place + 1):
            named |= _named(messages[near].text, people)
    if not writers or (writers | named) & subjects:
        return None
    last = max(places)
    if any(one.speaker in writers and _KIN.search(one.text) for one in messages[: last + 1]):
        return None
    return min(writers)


def _parts_of_names(item: Item) -> dict[str, set[str]]:
    """For each person who writes, the parts of the name that no other person shares."""
    found: dict[str, set[str]] = {}
    for message in item.evidence.messages:
        if message.author == "person":
            name = message.speaker
            parts = {word.folded for word in words.words_of(name)} - _TITLES
            parts |= {
                run[at] for run in words.runs_of(name) for at in (slice(None, 2), slice(-2, None))
            }
            found[name] = {part for part in parts if len(part) > 1}
    return {
        name: parts.difference(*(other for one, other in found.items() if one != name))
        for name, parts in found.items()
    }


def _named(text: str, people: dict[str, set[str]]) -> set[str]:
    """The people whom a text names."""
    keys = {key for word in words.words_of(text) for key in words.keys_of(word.folded)}
    runs = words.runs_of(text)
    return {
        name
        for name, parts in people.items()
        if any(
            not keys.isdisjoint(words.keys_of(part)) or any(part in run for run in runs)
            for part in parts
        )
    }
