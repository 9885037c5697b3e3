"""Whether a text is a statement that can be understood alone: a subject and what it does."""

from __future__ import annotations

import re
from collections.abc import Collection

from edenmem.acceptance.words import fold, normal, runs_of, without_quotes, words_of

_I = re.IGNORECASE

_GREETING = re.compile(
    r"((hi|hey|hello|hallo|hola|bonjour|ciao|good|morning|afternoon|evening|night|day|bye|goodbye"
    r"|thanks|thank|you|very|much|so|ok|okay|sure|welcome|cheers|yes|no|please|there|all|everyone"
    r"|nice|great|cool|guten|tag|abend|danke|vielen|dank|tschüss|merci|beaucoup|salut|bonsoir"
    r"|gracias|muchas|adiós|buenos|buenas|días|tardes|noches|grazie|buongiorno|buonasera|obrigado"
    r"|obrigada|olá|bom|dia|boa|noite|привет|спасибо|здравствуйте|пока|bedankt|dank|je|wel|cześć"
    r"|dziękuję|merhaba|teşekkürler|tack|hej)( |\Z)){1,6}\Z"
    r"|(hi|hey|hello|hallo|hola|bonjour|salut|ciao|привет|thanks|welcome|bye|goodbye"
    r"|good (morning|evening|night))( \w+){1,2}\Z"
    r"|(你好|您好|谢谢|多谢|再见|早上好|晚安|こんにちは|ありがとう|ありがとうございます"
    r"|おはよう|おはようございます|さようなら"
    r"|안녕하세요|감사합니다|안녕)( \w+)?\Z"
)
_GREETED = re.compile(
    r"(\S+ ){1,4}(greeted|thanked|(said|says) (hi|hey|hello|thanks|thank you|goodbye|bye|good \w+))"
    r"( (to )?\S+){0,3}[.!]?",
    _I,
)
_AGENT_TALK = re.compile(
    r"(i am|i'm|as) an? (ai|artificial|language model|virtual assistant|helpful assistant)\b"
    r"|als (ki|künstliche intelligenz|sprachmodell)\b|en tant qu'(ia|intelligence artificielle"
    r"|assistant)"
    r"|como (una )?(ia|inteligencia artificial|modelo de lenguaje)\b",
    _I,
)
_STOCK = re.compile(
    r"\b(let me know if|how (can|may) i (help|assist)|feel free to (ask|reach)|(i'm |i am"
    r" )?happy to help"
    r"|is there anything else|i hope this helps|glad (i could|to) help"
    r"|wie kann ich (ihnen|dir) helfen|n'hésitez pas à|¿?en qué puedo ayudar|come posso aiutar"
    r"|como posso ajudar|чем (я )?могу помочь)",
    _I,
)
_TOOL_TALK = re.compile(
    r"[{\[<].*[}\]>]\Z"
    r"|(the )?(\w+ )?(tool|task|command|function|request|operation|api)( call)? "
    r"(was |has |is )?(been )?(run |executed |completed |finished |returned |succeeded )"
    r"?(successful(ly)?|completed|finished|failed|succeeded|returned( an?)? (error|result)s?)\b"
    r"[^\w]*\Z"
    r"|(http )?(status|error)( code)?[:= ]+\w+\W*\Z|traceback \(most recent call last\)"
    r"|tool \w+( \[\w+\])? \{",
    _I | re.DOTALL,
)
_FENCE = re.compile(r"<<<[\w ]+ [0-9a-f]{8,}>>>")
#: The marks of a transcript: "[3] 14:05 anna: …".
_TRANSCRIPT = re.compile(
    r"\[\d{1,4}\]\s|\[?\d{4}-\d\d-\d\d \d\d:\d\d( UTC)?\]? \S+:|\d\d:\d\d [^:\s]{1,30}: "
)
_LABEL = re.compile(
    r"(fact|facts|reflection|note|summary|user|assistant|system|memory|important|answer|output"
    r"|content|scope)"
    r"s?\s?(\d{1,3}\s?)?:\s",
    _I,
)

#: A pronoun that nobody can resolve: of the first and second person anywhere, by language.
_PRONOUNS = {
    "en": r"(?-i:I)(?:'(?:m|ve|d|ll))?|my|mine|myself|me|you|your|yours|yourself|you're|we|our"
    r"|ours|us(?!-)",
    "de": r"ich|mich|mir|mein(?:e|en|em|er|es)?|du|dich|dir|dein(?:e|en|em|er|es)?|wir|uns"
    r"|unser(?:e|en|em|er|es)?",
    "fr": r"je|moi|mon|ma|mes|tu|toi|tes|nous|notre|nos|vous|votre|vos",
    "es": r"yo|mi|mis|conmigo|(?<!\w)mí|tú|tu|tus|contigo|nosotr[oa]s|nuestr[oa]s?|usted(?:es)?"
    r"|vosotr[oa]s",
    "it": r"io|mio|mia|miei|mie|tu|tuo|tua|tuoi|tue|noi|nostr[oaie]|voi|vostr[oaie]",
    "pt": r"\w+-me|eu|meu|minha|meus|minhas|comigo|você|vocês|teu|tua|nós|nosso|nossa"
    r"|nossos|nossas",
    "nl": r"ik|mij|mijn|jij|jou|jouw|wij|ons|onze|jullie",
    "pl": r"ja|mój|moja|moje|moją|mnie|mi|ty|twój|twoja|my|nasz|nasza",
    "sv": r"jag|mig|min|mina|mitt|du|dig|din|dina|vi|oss|vår|våra",
    "ru": r"я|мне|меня|мной|мой|моя|моё|мои|моей|моего|ты|тебе|тебя|твой|твоя|мы|нам|нас|наш"
    r"|наша|наши|вы|вам|вас|ваш|ваша",
    "uk": r"я|мені|мене|мій|моя|моє|мої|ти|тобі|тебе|ми|нам|нас|наш|ви|вам|вас",
    "tr": r"ben|benim|bana|beni|sen|senin|sana|biz|bizim|siz|sizin",
    "ar": r"أنا|أنت|نحن",
    "hi": r"मैं|मैंने|मुझे|मेरा|मेरी|मेरे|तुम|आप|आपका|आपकी|हम|हमारा|हमारी|हमें",
}
_PRONOUN = {
    language: re.compile(rf"(?<![\w'’-])(?:{words})(?![\w\u0900-\u0903\u093a-\u094f-])", _I)
    for language, words in _PRONOUNS.items()
}
#: "J'aime": no other language is written like this.
_ELIDED = re.compile(r"(?<![\w'’-])j['’](?=[aeiouyhàâéèêëîïô])", _I)
_PRONOUN_UNSPACED = {
    "zh": re.compile("(?<!自)我(?!国)|你|您|咱们"),
    "ja": re.compile("私|僕|俺|あなた|君(?=は|の|が)|わたし"),
    "ko": re.compile(
        r"(?:^|\s)(?:나는|내가|저는|제가|나의|저의|당신|너는|네가|우리는|우리가)(?=\s|$)"
    ),
    "th": re.compile("^(?:ฉัน|ผม|คุณ|ดิฉัน)"),
}
#: A pronoun of the third person as the subject: nobody knows whose once the item stands alone.
_THIRD_PERSON = {
    "en": "he|she|they|it|him|her|his|their|he's|she's|they're|it's|this|that|these|those",
    "de": "er|sie|es|ihr|ihre|sein|seine",
    "fr": "il|elle|ils|elles|son|sa|ses|leur|leurs",
    "es": "él|ella|ellos|ellas|su|sus",
    "it": "lui|lei|loro|egli|suo|sua",
    "pt": "ele|ela|eles|elas|seu|sua",
    "nl": "hij|zij|ze|zijn|haar",
    "pl": "on|ona|oni|ono|jego|jej",
    "sv": "han|hon|hans|hennes",
    "tr": "o|onun|onlar",
    "ru": "он|она|они|оно|его|её|ее|их",
    "uk": "він|вона|вони|його|її",
    "ar": "هو|هي|هم",
    "hi": "वह|वे|उसका|उसकी|उसने",
}
#: "It was Anna who came", "It was Anna's turn".
_CLEFT = (
    r"(?!(?<=it) (?:(?:is|was) (?-i:[A-Z])\w+(?:['’]s |.* who )"
    r"|(?:is|was) (?:not )?(?:the (?:\w+ ){1,2}time|\w+(?: \w+)? (?:who|that|to|for|when))"
    r"|(?:took|takes|costs?) (?-i:[A-Z])))"
)
_THIRD = {
    language: re.compile(
        rf"(?:{words})(?![\w\u0900-\u0903\u093a-\u094f'’-])(?! [A-ZÀ-Þ]\w*(?:,| is\b)){_CLEFT}",
        _I,
    )
    for language, words in _THIRD_PERSON.items()
}
_THIRD_UNSPACED = re.compile(
    "^(?:他|她|它|他们|她们|彼は|彼女は|彼が|彼女が|彼らは|그는|그녀는|그가|เขา|เธอ)"
)

#: What a statement opens with that has lost its subject, by language.
_LOST_SUBJECTS = {
    "en": "is|are|was|were|has|had|have|does|did|would|can|could|should|might|likes?|loves?"
    "|prefers?|wants?|needs?|lives?|works?|plans|hates?|owns|enjoys?|speaks|plays|moved|moves"
    "|bought|buys|started|starts|went|goes|got|gets|visited|visits|studies|studied|uses|drives"
    "|drinks|eats|knows|thinks|said|says|asked|asks|mentioned|decided|allergic|interested in"
    "|born (?:in|on)|married to|planning to|looking (?:for|to)|moving to|going to"
    "|working (?:on|as|at|for)",
    "de": "hat|ist|war|mag|möchte|wohnt|arbeitet|lebt|will|braucht|plant|spricht|heißt|liebt|kauft"
    "|trinkt|zieht|fährt|isst|bevorzugt",
    "fr": "est|a(?= (?:une?|des|été))|aime|habite|travaille|veut|préfère|vit|possède|déteste|boit"
    "|mange|parle|va",
    "es": "es|tiene|vive|trabaja|quiere|prefiere|está|le gusta|necesita|odia|habla|va|compró",
    "it": "è|ha|vive|vuole|abita|lavora|ama|preferisce|parla|beve|mangia",
    "pt": "é(?! [A-ZÀ-Þ][\\w ]*que)|tem|mora|trabalha|gosta|prefere|quer|vive|fala|vai",
    "nl": "is|heeft|woont|werkt|wil|houdt|drinkt|eet|gaat|spreekt",
    "pl": "jest|ma|mieszka|pracuje|lubi|chce|woli|pije|mówi",
    "sv": "är|bor|har|gillar|arbetar|vill|dricker|äter|talar",
    "ru": "живёт|живет|работает|любит|хочет|имеет|предпочитает|купил|купила|переехал|переехала|пьёт"
    "|говорит|есть",
    "uk": "живе|працює|любить|хоче|має|купив|купила|переїхав|переїхала",
}
_NO_SUBJECT = {
    language: re.compile(rf"(?:{verbs})(?![\w'’-])(?! [A-ZÀ-Þ][\w'’]* (?:is|are|was|were)\b)")
    for language, verbs in _LOST_SUBJECTS.items()
}
_FRAGMENT_STARTS = {
    "en": "and|but|or|because|so that|which|whose|although|including|such as|especially",
    "de": "und|aber|oder|weil|obwohl|denn",
    "fr": "et|mais|ou|parce que|car",
    "es": "y|pero|porque|aunque|o sea",
    "it": "e|ma|perché|oppure",
    "pt": "e|mas|porque|ou",
    "nl": "en|maar|omdat|of",
    "pl": "i|ale|bo|ponieważ|albo",
    "sv": "och|men|eftersom|eller",
    "ru": "и|но|потому что|а|или",
    "uk": "і|але|тому що|або|бо",
}
_FRAGMENT_START = {
    language: re.compile(rf"(?:{starts})(?![\w'’-])", _I)
    for language, starts in _FRAGMENT_STARTS.items()
}
_HAS_VERB = re.compile(
    r"\b(?:is|are|was|were|be|been|has|have|had|will|would|can|could|may|does|did|do|should|must"
    r"|needs?|wants?"
    r"|\w{2,}(?:s|ed|ing)|went|got|made|took|came|left|met|bought|sold|built|won|lost|gave|said"
    r"|told|found|kept|held|ran|"
    r"began|wrote|read|spoke|paid|sent|led|grew|broke|chose|taught|drove|flew|born|put|set|cut"
    r"|let|hit|cost|became|knew|thought)\b",
    _I,
)

_QUESTION = re.compile(r"[?？؟]\s*[)\]]*\s*\Z|\A¿|(?:か|かな|吗|呢|嗎)[。？?]?\Z")
_QUESTION_START = re.compile(
    r"(?:what|who|where|when|why|how|which) (?:is|are|was|were|do|does|did|can|could|should|will"
    r"|would|many|much|old|long)\b"
    r"|(?:do|does|did|can|could|would|should|is|are) (?:you|i|we|anyone|somebody|someone|there)\b",
    _I,
)

#: "the user", by language: replaced by the name where the conversation has one person.
_USER = re.compile(
    r"(?<![\w-])(?:"
    r"(?P<de>(?:der|die|dem|den|des|dieser|diese) (?:nutzer|benutzer|anwender|user)(?:in|s)?)"
    r"|(?P<fr>l['’]utilisat(?:eur|rice)|l['’]usager)"
    r"|(?P<es>(?:el|la) usuari[oa])|(?P<it>l['’]utente)|(?P<pt>(?:o|a) (?:usuári[oa]"
    r"|utilizador[a]?))"
    r"|(?P<nl>de gebruiker)|(?P<en>(?:the|this) (?:user|human)(?=['’]s\b|\b))"
    r"|(?P<pl>użytkownik(?:a|owi|iem)?|użytkowniczk[aię])|(?P<sv>användaren)"
    r"|(?P<tr>kullanıcı(?:nın|ya|yı)?)"
    r"|(?P<ru>пользовател(?:ь|я|ю|ем|ьница|ьницы))|(?P<uk>користувач(?:а|у|ем|ка|ки)?)"
    r")(?![\w-])|^(?P<bare>User)(?=['’]s |\s[a-z])",
    _I,
)
_USER_UNSPACED = re.compile(
    "(?:该|这位|這位|此)?(?:用户|用戶|使用者)|ユーザーさん|ユーザ(?:ー)?|사용자"
    "|ผู้ใช้(?:งาน)?|المستخدم|उपयोगकर्ता"
)
#: After these words it is a thing: "the user interface", "user's guide".
_USER_THING = re.compile(
    r"\s?(?:interface|stor(?:y|ies)|manual|guide|account|accounts|id|ids|name|names|table|group"
    r"|base|experience|research"
    r"|testing|tests?|profile|agent|role|界面|名|手册|画面|インターフェース|数|量)",
    _I,
)


def name_the_user(text: str, user: str) -> str:
    """``text`` with "the user" replaced by their name."""
    for pattern in (_USER, _USER_UNSPACED):
        text = pattern.sub(
            lambda match: match.group() if _USER_THING.match(match.string, match.end()) else user,
            text,
        )
    return text


def has_the_user(text: str) -> bool:
    """Whether a text speaks of "the user" as a person without a name."""
    bare = without_quotes(text)
    return any(
        not _USER_THING.match(bare, match.end())
        for pattern in (_USER, _USER_UNSPACED)
        for match in pattern.finditer(bare)
    )


def find_junk(text: str) -> str | None:
    """Why a text is no statement at all but a phrase of a conversation or of a tool."""
    words = normal(text)
    if not words:
        return "has no words"
    if len(words) < 120 and (_GREETING.match(words) or _GREETED.fullmatch(text)):
        return "is a greeting and not a fact"
    if _AGENT_TALK.match(text) or _STOCK.search(without_quotes(text)):
        return "is a stock phrase of an agent"
    if _TOOL_TALK.match(text):
        return "is what a tool prints as a matter of course"
    if _FENCE.search(text):
        return "holds the marks that fence data in the prompt"
    if _TRANSCRIPT.match(text):
        return "is a line copied from the transcript; state what it says"
    if label := _LABEL.match(text):
        return f"begins with the label '{label.group().strip()}'; give the statement alone"
    return None


def find_fault(text: str, language: str, speakers: Collection[str] = ()) -> str | None:
    """What keeps a text from being a statement with a subject; None if nothing does.

    ``speakers`` are the folded words of speakers' names, which may begin with a small letter.
    """
    bare = without_quotes(text)
    if _QUESTION.search(bare.strip()) or _QUESTION_START.match(bare):
        return "is a question; state what was answered, or leave it out"
    for pattern in (_PRONOUN.get(language), _PRONOUN_UNSPACED.get(language), _ELIDED):
        found = pattern.finditer(bare) if pattern is not None else ()
        if match := next((each for each in found if not _is_proper(bare, each, speakers)), None):
            return f"says '{match.group().strip()}'; name the person or thing instead"
    stripped = bare.lstrip(" -•*")
    third = _THIRD.get(language, _THIRD_UNSPACED)
    if match := third.match(stripped) or _THIRD_UNSPACED.match(stripped):
        return f"begins with '{match.group()}'; name the person or thing instead"
    words = words_of(stripped)
    is_named = bool(words) and words[0].folded in speakers
    lost, starts = _NO_SUBJECT.get(language), _FRAGMENT_START.get(language)
    if not is_named and lost and (match := lost.match(_lower_first(stripped))):
        return f"begins with '{match.group()}' and has no subject; say who or what"
    if not is_named and starts and (match := starts.match(stripped)):
        return f"begins with '{match.group()}', as part of a sentence; write a whole statement"
    return _find_fragment(text, bare, language, speakers)


#: What stands before the first word of a sentence.
_BEGINS = re.compile(r"(?:\A|[.!?…:;]\s+)\Z")
_NUMERAL = re.compile(r"(?<=\s)[A-Z][a-z]+ \Z")


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _is_proper(text: str, match: re.Match[str], speakers: Collection[str]) -> bool:
    """Whether what looks like a pronoun is part of a name: "US", "Mi", "We Work Remotely"."""
    written = match.group()
    if (len(written.rstrip("'’")) > 1 and written.isupper()) or fold(written) in speakers:
        return True
    if written == "I" and _NUMERAL.search(text[: match.start()]):
        return True  # Elizabeth I
    following = re.match(r"\s[A-ZÀ-Þ]", text[match.end() :])
    return (
        written[0].isupper()
        and written not in ("I", "I'm", "I've", "I'd", "I'll")
        and (not _BEGINS.search(text[: match.start()]) or bool(following))
    )


_REPLY = re.compile(
    r"(?:yes|no|yeah|ok|okay|sure|ja|nein|oui|non|sí|sì|sim|não|nee|tak|nie|nej|evet|hayır|да"
    r"|нет|так|ні|نعم|لا|हाँ|नहीं)(?:[,.!]|$)"
    r"|(?:نعم|हाँ) "
    r"|(?:はい|ええ|いいえ|うん|要|好|好的|对|是的|不|嗯|可以|네|아니요|예)(?:[,，、。.!！]|$)",
    _I,
)
_OPENER = re.compile(
    r"(?:then|so|also|well|dann|also|und|alors|donc|puis|entonces|luego|pues|allora|poi|então"
    r"|depois|dan|dus|potem|więc|sen|sonra"
    r"|потом|тогда|значит)(?![^\W_])",
    _I,
)
_ADDRESSED = re.compile(r"[^\W\d_]+, [^\W\d_]+[.!]?\Z")
_CALLED = re.compile(r"(?:an?|the) \w+ (?:called|named) \w+\.?\Z", _I)


#: Several as the subject: their verb has no ending.
_SEVERAL = re.compile(r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)? and [A-Z][\w'’-]+(?: [A-Z][\w'’-]+)? \w+")


def _find_fragment(text: str, bare: str, language: str, speakers: Collection[str]) -> str | None:
    runs = sum(map(len, runs_of(text)))
    words = words_of(text)
    if _REPLY.match(text) and len(words) + runs / 2 <= 5:
        return "is a reply and not a statement; say what it means"
    if runs >= 5:
        return None
    if runs:
        return "is too short to be a statement" if len(words) + runs < 5 else None
    if text.rstrip().endswith((":", "：", ",", ";")):
        return "breaks off; write a whole statement"
    if len(words) < 2:
        return "is a single word; write a whole statement"
    first = words[0].written
    if (
        len(words) <= 4
        and first[0].islower()
        and first == first.lower()
        and words[0].folded not in speakers
    ):
        return "is a part of a sentence; write a whole statement"
    if len(words) <= 4 and (_OPENER.match(text) or _ADDRESSED.match(text) or _CALLED.match(text)):
        return "is a part of a sentence; write a whole statement"
    plain = [word.written for word in words if not word.written[0].isdigit()]
    if (
        language != "de"
        and plain
        and len(plain) == len(words)
        and all(word[0].isupper() for word in plain)
        and len(plain) <= 4
    ):
        return "is a bare name; say what is to be known of it"
    has_verb = _HAS_VERB.search(bare.partition(" ")[2]) or _SEVERAL.match(bare)
    if language == "en" and not has_verb and len(words) <= (8 if first.endswith("s") else 12):
        return "has no verb; write a whole statement"
    return None
