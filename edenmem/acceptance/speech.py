"""What messages say of an item: of whom, whether they deny it, and how they mean it."""

from __future__ import annotations

import re
from collections.abc import Collection

from edenmem.acceptance import words
from edenmem.acceptance.evidence import Part, is_negated
from edenmem.acceptance.item import Item
from edenmem.acceptance.words import ascii_digits, base_of

# -- whether it is denied ------------------------------------------------------------------------

#: The share of an item that one clause must hold, and the least words, for it to be compared.
_COMPARED = 0.5


_LEAST = 2


def is_opposite(item: Item, places: Collection[int], least: int = _LEAST) -> bool:
    """Whether an item does not deny what the clause that holds most of it denies.

    The clause has to hold ``least`` words of the item.
    """
    if item.is_negated:
        return False
    evidence = item.evidence
    best, negated = 0, list[bool]()
    for place in places:
        for clause in evidence.clauses[place]:
            held = item.count_shared(clause)
            if held > best:
                best, negated = held, []
            if held == best:
                negated.append(is_negated(clause.text, evidence.language))
    return best >= max(least, _COMPARED * item.size) and all(negated)


#: A denial right before what it denies: "the 12th, not the 11th", "не 64, а 46".
_DENIED = re.compile(
    r"(?<![^\W_])(?:not|nicht|pas|no|non|não|niet|nie|inte|не|değil|ليس|ليست|لا)(?![^\W_])"
    r"(?: +(?:the|on|in|at|am|um|den|die|das|der|le|la|les|à|el|los|en|il|o|a|de|op|w|på|на"
    r"|в|es|is))* +"
    r"(?P<what>[^\W_][^\s,;.!?]{0,30})|(?P<before>[^\W_][^\s,;.!?]{0,30}) (?:नहीं|değil)(?![^\W_])"
    r"|不是(?P<han>[^\s，。,.]{1,12})",
    re.IGNORECASE,
)


#: How many messages later a correction may come.
_LATER = 4


def find_denied(item: Item, places: Collection[int]) -> str | None:
    """A number or a name of an item that its sources, or a person soon after, say is not so."""
    if item.is_negated:
        return None
    evidence = item.evidence
    told = {re.sub(r"\D", "", number.written) for number in item.figures}
    told |= {str(reading[2]) for said in item.days for reading in said.readings if reading[2]}
    names = {word.folded for word in item.tokens[1:] if word.written[0].isupper()}
    last = len(evidence.messages)
    near = sorted({at for place in places for at in range(place, min(place + _LATER, last))})
    for place in near:
        message = evidence.messages[place]
        for match in _DENIED.finditer(message.text) if message.author == "person" else ():
            what = match["what"] or match["before"] or match["han"]
            digits = re.match(r"\d+", ascii_digits(what))
            if (digits and digits.group() in told - {""}) or base_of(what) in names:
                return what
    return None


# -- how it is meant -----------------------------------------------------------------------------

#: Words that say that something holds only if something else does, by language.
_CONDITIONS = {
    "en": "if(?! (?:you|that|it) (?:can|like|want|need|is (?:ok|fine))| possible)|unless|i wish",
    "de": "wenn|falls|würde\\w*|hätte\\w*|wäre\\w*",
    "fr": "si|aurai[st]|serai[st]|faudrait",
    "es": "si|ojalá|\\w+ría(?:n|mos)?",
    "it": "se|magari|sarei|vorrei",
    "pt": "tomara|quem dera|se eu",
    "nl": "als|indien|zou(?:den)?",
    "pl": "jeśli|gdyby\\w*|jeżeli|jakby\\w*",
    "sv": "om|skulle",
    "ru": "если|бы|кабы",
    "uk": "якщо|якби|би|б",
    "tr": "eğer|keşke|\\w+s[ae]m|\\w+rs[ae]m?|\\w+s[ae]k",
    "ar": "لو|إذا|إن",
    "hi": "अगर|यदि|काश",
}


#: Words that leave open whether something is so.
_GUESSES = {
    "en": "maybe|perhaps|might|probably|possibly|i guess|not sure|thinking (?:of|about)",
    "de": "vielleicht|eventuell|wahrscheinlich|womöglich|mal sehen",
    "fr": "peut-être|probablement|sans doute|on verra",
    "es": "quizás?|tal vez|capaz que|a lo mejor|puede que|probablemente",
    "it": "forse|probabilmente|magari|vedremo",
    "pt": "talvez|provavelmente|se calhar|quem sabe",
    "nl": "misschien|waarschijnlijk|wellicht",
    "pl": "może|chyba|pewnie|prawdopodobnie",
    "sv": "kanske|troligen|nog",
    "ru": "может|возможно|наверное|вероятно",
    "uk": "може|можливо|мабуть",
    "tr": "belki|galiba|herhalde",
    "ar": "ربما|قد|لعل",
    "hi": "शायद|हो सकता है",
}


_OPEN_WORDS = {
    language: re.compile(
        rf"(?<![\w\u0900-\u0963])(?:{words}|{_GUESSES[language]})(?![\w\u0900-\u0963])",
        re.IGNORECASE,
    )
    for language, words in _CONDITIONS.items()
} | {
    "zh": re.compile("如果|要是|假如|的话|也许|可能|说不定|大概"),
    "ja": re.compile("もし|かも(?:しれ|。|$)|たらいいな"),
    "ko": re.compile("만약|면 |거야|아마|지도"),
    "th": re.compile("ถ้า|อาจ|ฝัน|คง"),
}


#: Words by which people say that they do not mean it.
_JOKES = re.compile(
    r"(?<![^\W_])(?:jk|(?:just )?kidding|joking|scherz|spaß|blague|rigole|(?:en )?broma"
    r"|scherzo|brincadeira|grapje"
    r"|żartuję|шучу|шутка|жартую|şaka|مزحة|أمزح|मज़ाक)(?![^\W_])|开玩笑|冗談|농담|555+",
    re.IGNORECASE,
)


def find_unmeant(item: Item, places: Collection[int]) -> str | None:
    """How the sentences that hold most of an item were meant, if not as the item says."""
    evidence = item.evidence
    if len(places) > 1:
        return None  # others may have agreed
    best, unmeant = 0, list[str | None]()
    for place in places:
        for sentence in evidence.sentences[place]:
            held = item.count_shared(sentence)
            if held > best:
                best, unmeant = held, []
            if held == best:  # what is asked is perhaps answered
                is_asked = sentence.is_question
                unmeant.append(None if is_asked else _meaning(sentence.text, evidence.language))
    if best < max(_LEAST, _COMPARED * item.size) or _meaning(item.content, item.languages[0]):
        return None
    return unmeant[0] if unmeant and all(unmeant) else None


def _meaning(sentence: str, language: str) -> str | None:
    if _JOKES.search(sentence):
        return "a joke"
    pattern = _OPEN_WORDS.get(language)
    return "a condition or a guess" if pattern and pattern.search(sentence) else None


# -- of whom it is -------------------------------------------------------------------------------

_VOCATIVE = re.compile(r"(?<!\w)يا \w+")


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
    r"(?<![^\W_])(?:m[uo]m(?:my)?|mother|dad(?:dy)?|father|grand\w+|gran|nan|sister|brother"
    r"|son|daughter|uncle"
    r"|aunt|cousin|nephew|niece|husband|wife|partner|in-laws?|miss|sir|coach|boss|kids?|twins"
    r"|mutter|mama|vater|papa|oma|opa|groß\w+|schwester|bruder|sohn|tochter|onkel|tante"
    r"|mann|frau|kind\w*|chef\w*"
    r"|mère|maman|père|mamie|papi|papy|sœur|soeur|frère|fils|fille|oncle|mari|femme"
    r"|madre|mamá|padre|papá|aita|ama|abuel[oa]s?|herman[oa]s?|hij[oa]s?|tí[oa]s?|marido|mujer|jefe"
    r"|mamma|papà|babbo|nonn[oa]|sorella|fratello|figli[oa]|zi[oa]|marito|moglie"
    r"|mãe|pai|av[óô]|vó|vô|irmã|irmão|filh[oa]|ti[oa]|marido|mulher"
    r"|moeder|vader|oma|opa|zus|broer|zoon|dochter|oom|man|vrouw"
    r"|mam[aąyie]+|tat[aąyo]+|babci\w*|dziad\w*|siostr\w+|brat\w*|syn\w*|córk\w+|mąż|żon\w+"
    r"|mamma|pappa|mormor|farmor|morfar|farfar|syster|bror|son|dotter|fru"
    r"|мам\w*|пап\w*|бабушк\w+|дедушк\w+|дед\w*|сестр\w+|брат\w*|сын\w*|доч\w+|муж\w*"
    r"|жен\w+|тёт\w+|дяд\w+"
    r"|anne\w*|baba\w*|dede\w*|nine\w*|kardeş\w*|abla\w*|abi\w*|oğl\w+|kız\w+|eş\w+)(?![^\W_])"
    r"|أم[يه]|أب[يو]|والد|جد[تي]|أخت|أخ[يو]|ابن|خال|عم[يت]|زوج|माँ|मां|माता|पिता|पापा|दाद"
    r"|नान|बहन|भाई|बेट|पति|पत्नी|चाच|माम"
    r"|母|父|妈|媽|爸|奶|爷|姐|妹|哥|弟|儿子|女儿|丈夫|妻|老公|老婆|祖|姉|兄|息子|娘|夫"
    r"|エマ|엄마|아빠|어머니|아버지|할머니|할아버지|누나|언니|오빠|형|동생|아들|딸|남편|아내",
    re.IGNORECASE,
)


def find_other_person(item: Item, places: Collection[int]) -> str | None:
    """The person whom an item's sources are about, where the item is about others; else None.

    The clauses that hold most of the item decide: they are about the people whom they name, and
    about their writer if the writer says "I". A clause that tells neither decides nothing. In any
    case, an item must be about a person who wrote its sources, or who is named in them or in the
    messages before them.
    """
    people = item.evidence.people
    subjects = _named(item.part, people) if len(people) > 1 else None
    if not subjects:
        return None
    if other := _find_relative(item, places, people, subjects):
        return other
    if writer := _find_stranger(item, places, people, subjects):
        return writer
    best, referred = 0, list[set[str]]()
    for place in places:
        message = item.evidence.messages[place]
        for clause in item.evidence.clauses[place]:
            score = item.count_shared(clause)
            if score < max(best, 1):
                continue
            referred = referred if score == best else []
            best = score
            about = _named(_without_vocatives(clause), people)
            own_words = _SELF.get(item.evidence.language, _SELF_UNSPACED)
            if message.author == "person" and own_words.search(clause.text):
                about.add(message.speaker)
            referred.append(about)
    if not referred or any(not about or about & subjects for about in referred):
        return None
    return min(referred[0])


#: A pronoun that opens a clause about a person named before, by language.
_THIRD = {
    "en": "he|she|he['’]s|she['’]s",
    "de": "er|der(?= [a-zäöü]+t\\b)",
    "fr": "il|elle",
    "es": "él|ella",
    "it": "lui|lei",
    "pt": "ele|ela",
    "nl": "hij|zij",
    "pl": "on|ona",
    "sv": "han|hon",
    "ru": "он|она",
    "uk": "він|вона",
    "ar": "هو|هي",
    "hi": "वह|उसे|उन्हें",
}


_OPENS_THIRD = {
    language: re.compile(
        rf"\s*(?:(?:and|und|et|y|e|en|i|och|и|і) )?(?:{own})(?![\w\u0900-\u0963])", re.I
    )
    for language, own in _THIRD.items()
}


_OPENS_THIRD_UNSPACED = re.compile(r"\s*(?:[他她]|彼)")


def _find_relative(
    item: Item, places: Collection[int], people: dict[str, frozenset[str]], subjects: set[str]
) -> str | None:
    """Whom the clause that holds most of an item is about, where it opens with "he" or "my father"
    and the item tells it of its writer alone."""
    evidence = item.evidence
    named = [place for place in places if evidence.messages[place].number in item.candidate.sources]
    if len(named) != 1 or _KIN.search(item.content):
        return None
    message = evidence.messages[named[0]]
    if message.author != "person" or subjects != {message.speaker}:
        return None
    best, about = 0, list[str | None]()
    opens = _OPENS_THIRD.get(evidence.language, _OPENS_THIRD_UNSPACED)
    for part in evidence.clauses[named[0]]:
        score = item.count_shared(part)
        if score > best:
            best, about = score, []
        if score == best:
            clause = part.text
            head = " ".join(clause.split()[:2])
            match = opens.match(clause) or _KIN.search(head)
            rest = clause.strip().removeprefix(head) if match else clause  # after "my sister"
            own = _SELF.get(evidence.language, _SELF_UNSPACED).search(rest)
            about.append(match.group().strip() if match and not own else None)
    if best < max(1, 0.5 * item.size) or not all(about):
        return None
    return about[0]


def _find_stranger(
    item: Item, places: Collection[int], people: dict[str, frozenset[str]], subjects: set[str]
) -> str | None:
    """Who wrote an item's sources, where those do not have to do with the people it is about."""
    messages = item.evidence.messages
    writers, named = set[str](), set[str]()
    for place in places:
        if messages[place].author != "person":
            return None
        writers.add(messages[place].speaker)
        for near in range(max(place - 2, 0), place + 1):
            named |= _named(item.evidence.parts[near], people)
    if not writers or (writers | named) & subjects:
        return None
    last = max(places)
    if any(one.speaker in writers and _KIN.search(one.text) for one in messages[: last + 1]):
        return None
    return min(writers)


def _without_vocatives(part: Part) -> Part:
    bare = _VOCATIVE.sub(" ", part.text)
    return part if bare == part.text else Part(bare)


def _named(part: Part, people: dict[str, frozenset[str]]) -> set[str]:
    """The people whom a text names."""
    return {
        name
        for name, parts in people.items()
        if any(
            not part.keys.isdisjoint(words.keys_of(one)) or any(one in run for run in part.runs)
            for one in parts
        )
    }
