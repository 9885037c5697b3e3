"""Orders to the agent or its memory, and text that speaks as the system.

An agent carries what it remembers into every conversation: a sentence that reads as an order there
is one. As a named person's wish it may be kept in that person's own memory.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from functools import lru_cache

from edenmem.acceptance.words import fold, stop_words, word_set

_I = re.IGNORECASE

#: Text that speaks as the system, or to the memory: refused wherever it is to be kept.
_SYSTEM = re.compile(
    r"(?:\W{0,3})(?:system(?: (?:prompt|message|note|override|notice|update|instruction"
    r"|instructions|alert))?|sysadmin|admin(?:istrator)?(?: (?:note|override|notice))?"
    r"|developer(?: (?:message|note|mode))?|root|assistant instructions?|instructions?(?: to"
    r" (?:the )?(?:agent|assistant|ai|model))?"
    r"|systemnachricht|systemhinweis|système|message système|sistema|mensaje del sistema"
    r"|системное сообщение|система|システム|系统|系統|시스템)\s?[\])>»】]*\s?[:：>]"
    r"|.{0,200}(?:<\|(?:im_start|system|endoftext)|\[/?INST\]|<</?SYS>>|###\s?(?:system"
    r"|instruction)|</?system>)"
    r"|.{0,200}\b(?:you are now (?:in |an? |the |dan\b|unrestricted|free)|developer mode"
    r"|jailbreak|act as (?:an? )?(?:unrestricted|dan\b))",
    _I | re.DOTALL,
)
_TO_MEMORY = re.compile(
    r"(?:please )?(?:delete|remove|forget|erase|overwrite|drop|wipe|clear) "
    r"(?:all |the |any |every |existing |stored |previous |other |of |your )*"
    r"(?:fact|memory|memories|reflection)s?\b"
    r"|.{0,300}\b(?:ignore|disregard|override|forget|bypass) (?:all |any |the |your |of |these "
    r"|every )*"
    r"(?:previous|prior|above|earlier|system|other|safety|existing|former) (?:\w+"
    r" )?(?:instruction|rule|prompt|message|memor|guideline|restriction)"
    r"|(?:please )?(?:remember|note|memori[sz]e)(?: that|:)? you (?:must|should|shall|have to"
    r"|will|are|can|may) "
    r"|.{0,300}\bignorier\w* (?:alle |die |deine |sämtliche )*(?:vorherigen |bisherigen "
    r"|früheren |vorigen )?(?:anweisung|regel|instruktion|vorgabe)"
    r"|.{0,300}\b(?:ignore[zr]?|oublie[zr]?) (?:toutes? )?(?:les |tes |vos )(?:instructions"
    r"|règles|consignes)"
    r"|.{0,300}\b(?:ignora|ignore|olvida|olvide) (?:todas? )?(?:las |tus |sus )(?:instrucciones"
    r"|reglas|órdenes|anteriores)"
    r"|.{0,300}\bignora (?:tutte )?(?:le |tue )*(?:istruzioni|regole)|.{0,300}\b(?:ignore"
    r"|esqueça) (?:todas )?(?:as )(?:instruções|regras)"
    r"|.{0,300}\b(?:игнорируй\w*|забудь\w*) (?:все |всё |любые )?(?:предыдущие |прежние |прошлые"
    r" )?(?:инструкц|указан|правил)"
    r"|.{0,300}(?:忽略|无视|無視)(?:所有|之前|以前|先前|以上|全部|一切|の|すべて|的|你"
    r"|您)*(?:指令|指示|规则|規則|命令)"
    r"|.{0,300}(?:以前|これまで|すべて|前)の(?:指示|命令|ルール).{0,6}(?:無視|忘れ)"
    r"|.{0,300}(?:이전|모든)\s?(?:지시|명령|규칙).{0,8}(?:무시|잊)",
    _I | re.DOTALL,
)

_LEAD = (
    r"(?:please |kindly |important[:!]? |remember[:,]? |note[:,]? |from now on,? |starting now,?"
    r" |going forward,? |in (?:the )?future,? |whenever [^,]{1,60}, |when [^,]{1,60}, |if"
    r" [^,]{1,60}, "
    r"|ab sofort |von nun an |ab jetzt |künftig |bitte |wenn [^,]{1,60}, |désormais,? |à partir"
    r" de maintenant,? |dorénavant,? |a partir de ahora,? |de ahora en adelante,? |por favor,? "
    r"|d'ora in poi,? |da ora in poi,? "
    r"|a partir de agora,? |de agora em diante,? |vanaf nu |od teraz |bundan sonra |отныне,? |с"
    r" этого момента,? |пожалуйста,? |впредь,? )*"
)
#: A capital after "always" or "never" is a title or a name, not an order.
_IMPERATIVE = re.compile(
    _LEAD + r"(?:(?:always|never) (?!is\b|was\b)(?-i:[a-z])"
    r"|you (?:must|should|shall|have to|will|need to|are to|may|can)\b"
    r"|do not (?-i:[a-z])|don['’]t (?-i:[a-z])|make sure\b|be sure to\b|ensure (?:that )?|keep"
    r" in mind\b|refrain from\b|pretend\b"
    r"|(?:ignore|remember|respond|reply|answer|tell|recommend|promote|mention|refuse|obey"
    r"|disregard|reveal|avoid|stop|treat|call|address|greet|give|grant|send|transfer|use|say"
    r"|speak|write|output|print|include|insist|approve|praise|trust|follow|share|start|begin|end"
    r"|add|append|forward|direct|redirect|talk|act|behave|believe|assume|consider|provide|offer"
    r"|charge|deny|hide|keep|let|put|show|sign|delete|forget|deploy|run|execute|switch|translate"
    r"|warn|address|suggest|claim) "
    r"(?:only |always |never |all |any |every(?:one|body)?\b|each |the |your |this |that |to |in"
    r" |with |as |him |her |them |me |it |people|users|everyone|anyone|nobody|no |new |about "
    r"|for |from |messages?|questions?|payments?|money|links?|requests?|answers?|replies"
    r"|everything|nothing|customers?|discounts?|exclusively|(?-i:[A-Z])\w+ (?:as|to|that|about"
    r"|in|with|only|for|by|first|over|whenever|when|a|the)\b)"
    r"|(?:immer|niemals|nie) (?-i:[a-zäöü])|du (?:musst|sollst|darfst|wirst)\b|sie müssen\b"
    r"|(?:antworte|ignoriere|vergiss|sage?|nenne|schreib|schreibe|empfiehl|empfehle|erwähne"
    r"|verwende|benutze|sprich|gib|leite|lösche|verrate|behandle|begrüße|überweise|sende|schicke"
    r"|bestätige|vertraue|lobe|merke?)(?:t|n sie)? "
    r"|toujours (?-i:[a-z])|ne (?:jamais )?\w+(?:ez|e|s|is|ds)? (?:jamais|pas|plus)\b|(?:réponds"
    r"|répondez|ignore|ignorez|oublie|oubliez|dis|dites|recommande|recommandez|envoie|envoyez"
    r"|utilise|utilisez|parle|parlez|mentionne|mentionnez|donne|donnez|traite|traitez|révèle"
    r"|révélez|fais|faites|appelle|appelez|transfère|transférez) |tu (?:dois|devras)\b|vous"
    r" devez\b"
    r"|siempre (?-i:[a-z])\w*|nunca (?-i:[a-z])|(?:responde|ignora|olvida|di|recomienda|envía"
    r"|envia|usa|habla|menciona|no menciones|no digas|no \w+[ae]s|da|trata|revela|llama"
    r"|transfiere|aprueba|saluda|contesta) (?!.{0,20}\b(?:es|está)\b)|debes\b|tienes que\b"
    r"|sempre (?-i:[a-z])|mai |non (?:menzionare|dire|rivelare|usare|rispondere|parlare)\b"
    r"|(?:rispondi|ignora|dimentica|consiglia|invia|manda|usa|parla|chiama|tratta) |devi\b|deve"
    r" sempre"
    r"|(?:responda|ignore|esqueça|diga|recomende|envie|use(?! of\b)|fale|mencione"
    r"|não \w+[ae]) |você deve\b"
    r"|(?:antwoord|negeer|vergeet|gebruik|vermeld|noem|zeg|stuur) (?:altijd|nooit|alle|de|het"
    r"|geen|in|alleen|iedereen|op)\b|(?:altijd|nooit) (?-i:[a-z])|je moet\b"
    r"|zawsze (?-i:[a-z])|nigdy (?-i:[a-z])|(?:powiedz|pisz|chwal|wybieraj|dodaj|usuń|zapamiętaj"
    r"|pamiętaj|przekaż|wyślij|traktuj|zachowuj|odpowiedz|odpowiadaj|ignoruj|zapomnij|mów"
    r"|polecaj|wysyłaj"
    r"|używaj|nie \w+(?:aj|uj)) |musisz\b"
    r"|alltid (?-i:[a-z])|aldrig (?-i:[a-z])|svara (?:alltid|bara|på)\b|du (?:måste|ska)\b"
    r"|всегда (?-i:[а-я])|никогда (?-i:[а-я])|(?:отвечай|игнорируй|забудь|говори|рекомендуй"
    r"|отправляй|используй|упоминай|не \w+(?:й|йте)|называй|переводи|удали|соглашайся|выдавай"
    r"|пиши)(?:те)? |ты (?:должен|должна|обязан)\b|вы должны\b"
    r"|(?:her zaman|daima|asla|hep) "
    r"|(?:every|each|all) (?:repl|answer|response|message)\w* (?:must|should"
    r"|has to|have to|needs? to)\b)",
    _I,
)
_IMPERATIVE_UNSPACED = re.compile(
    r"(?:从现在起|从今以后|从今往后|以后|今后|請|请|务必|總是|总是|始终|永远|绝不要?"
    r"|绝对不要|不要|不得|必须|必須|你必须|你要|你应该|一定要|記住"
    r"|记住)[，,]?(?!.{0,3}(?:安娜|认为))"
    r"|(?:今後は?|これからは?|常に|必ず|絶対に|決して|いつも).{0,60}(?:してください|しろ"
    r"|せよ|すること|してはいけない|するな|なさい|答えて|答えること"
    r"|ください|話せ|ないこと)[。！!]?\Z"
    r"|.{1,80}(?:しなければならない|してください|てください|なさい|せよ|するな)[。！!]?\Z"
    r"|每次都?要|(?:帮|替|给)我|请你?帮|システムは"
    r"|(?:앞으로|지금부터|항상|절대|반드시).{0,60}(?:하세요|해라|하라|마세요|말 것|답하라"
    r"|십시오|해야 한다|마라|할 것)[.!]?\Z"
    r"|(?:จง|ต้อง|ห้าม|อย่า|ตั้งแต่นี้)"
    r"|(?:من الآن فصاعدا[،,]? ?)?(?:دائما|دائمًا|أبدا|لا ت\w+ |تجاهل|يجب عليك|قل |قولي |أخبر"
    r"|اجعل|احذف|امدح|استخدم|تذكر|تذكّر|رد |ردّ |أجب|أرسل|تحدث|تحدّث|اذكر|اكتب|انس|أعط|ادع|لا"
    r" تقل)|(?:हमेशा|कभी (?:भी )?(?:न|मत"
    r"|नहीं)|अब से).{0,80}(?:दो|करो|दें|करें|देना|करना|बोलो|बताना|कहना|करे)[।!.]?\Z"
    r"|.{1,80}(?:必ず|決して|絶対に).{1,60}こと[。]?\Z|.{0,40}(?:不许|不准|禁止)"
    r"|.{1,80} (?:भेज|कर|दे|ले|रख|बता|पूछ)(?: ?(?:दो|दें|दीजिए|ना|ें)|ें)[।!.]?\Z"
    r"|.{1,80} कभी न [^\s]+ें[।!.]?\Z"
    r"|.{1,80} मत [^\s]+(?:ना|ो|िए|ें)[।!.]?\Z"
)
#: A reminder that a person asked for is an appointment and not a rule of conduct.
_REMIND = re.compile(
    r"\s(?:remind|erinner|rappel|recordar|ricord|lembr|herinner|przypomn|påminn|напомн|нагад"
    r"|hatırlat)",
    _I,
)
#: Words that follow an imperative at the start of a sentence.
_AFTER_VERB = word_set(
    "the a an all every any your this that these those everyone everybody me him her them it only"
    " never always no nobody"
    " den die das dem alle allen immer nie niemals kein keine keinen ihm mir uns ihnen jedem"
    " le la les tous toutes toujours jamais leur"
    " el los las siempre nunca todo todos a"
    " il lo gli tutti sempre mai"
    " o os as todos sempre nunca"
)
#: Names that are verbs as well: "Grant always pays".
_NAMED = re.compile(
    r"(?:Grant|Mark|Bill|Rob|Sue|Pat|Drew|Will|Chase|Skip|Frank|Hope|Faith|Rich|Jack|Nick|Guy|Ray)"
    r" (?:always|never|usually|often) \w+s\b"
)
_FIRST = re.compile(r"[^\W_]+")
#: A verb with what makes it an order: "Prends toujours", "Roll back and do not ask".
_VERB_FIRST = re.compile(
    r"[nN]e (?!fonctionne)[^\W\d_]+(?: (?:pas|jamais|rien|plus|à personne))"
    r"|[А-ЯЁа-яё]{3,}(?:йте|ьте|ите)(?:сь)? "
    r"|(?-i:[^\W\d_]+) (?:toujours|jamais|sempre|siempre|altijd|immer|nooit|zawsze|alltid"
    r"|всегда)(?![^\W_])"
    r"|[^\W\d_]+[áéí](?:l[eao]s?|me|nos)? (?:siempre|nunca|todo|a|que|sol[oa]|el|la|los|las)\b"
    r"|[^\W\d_]+[^,.!?]{0,40} and (?:do not|don['’]t|never) [a-z]+"
    r"|(?:dec|d[ií])(?:[ií]?le|idle|iles)s? (?:a|que)\b|d[iì]glie?l?[oi]? |dis-(?:leur|lui|moi) "
    r"|dites-|sag (?:ihm|ihr|allen|mir)\b",
    _I,
)
#: A person's wish about how the agent behaves.
_ATTRIBUTED = (
    r"\b(?:asked|asks|wants|wanted|told|tells|instructed|instructs|requested|requests|ordered"
    r"|orders|demands?|demanded|expects|insists|requires|would like|prefers|wishes)"
    r"(?: for)?(?: that)?(?: {agents}| you)(?: to| should| must| shall| always| never| not| will"
    r"| may| only|\b)"
    r"|\b(?:bat|bittet|verlangt|verlangte|möchte|will|wünscht|fordert"
    r"|forderte)\b.{0,40}\b{agents}\b"
    r"|\b(?:a demandé|demande|veut|exige|souhaite|voudrait)\b.{0,40}{agents}\b"
    r"|\b(?:pidió|pide|quiere|exige|exigió)\b.{0,40}{agents}\b|\b(?:ha chiesto|chiede"
    r"|vuole)\b.{0,40}{agents}\b"
    r"|\b(?:pediu|pede|quer)\b.{0,40}{agents}\b|(?:попросил|попросила|просит|хочет|требует|велел"
    r"|велела).{0,40}{agents}"
    r"|(?:要求|希望|让|請|请).{0,6}{agents}|{agents}に.{0,60}(?:頼|求|望|要求|ほしい|よう)"
)
_MODAL = (
    r"(?:(?:please|from now on|important:?)[, ]+)?{agents}(?: \([^)]{1,40}\))? "
    r"(?:must|should|shall|has to|have to|needs? to|ought to|is to|are to|will always|will never"
    r"|may only|is required to|is instructed to|always|never|muss|soll|sollte|darf|doit|devrait"
    r"|debe|debería|deve|dovrebbe|moet|mag|powinien|musi|måste|ska|должен|должна|обязан|має)\b"
    r"|(?:يجب|ينبغي) على {agents} "
    r"|{agents}(?:必须|應該|应该|应当|要|不得|不能|は.{0,60}(?:べき|なければ|こと))"
    r"|{agents}(?:은|는).{0,60}(?:해야|안 된다)"
)
#: What agents are called when they are not named.
_AGENT_WORDS = (
    r"(?:(?:the|this|all|any|every|other|our|your|an?) )?(?:(?:good|great|helpful|proper|loyal"
    r"|polite|smart|real|true|perfect|competent|professional|responsible) )?(?:ai )?(?:agents?"
    r"|assistants?|bots?|chatbots?|ai|model|llm)(?: [A-Z]\w{1,20})?"
    r"|(?:der|die|den|dem) (?:agent(?:en)?|assistent(?:en|in)?|bot|ki)|l['’](?:agent|assistant"
    r"|ia|assistente|agente)|(?:el|la|al|o|ao|a|de) (?:agente|asistente|bot|ia|assistente"
    r"|assistent|agent)"
    r"|агент[ауы]?|ассистент[ауы]?|бот[ау]?|智能体|助手|助理|代理|エージェント"
    r"|アシスタント|에이전트|어시스턴트|비서"
)


#: A standing instruction, with or without a speaker: "Give full answers from now on".
_FROM_NOW = re.compile(r"[^.!?]{1,200} from now on[.!]?\Z", _I)
#: Forms of address and openings before the order itself; agents' names are added.
_CALL = re.compile(
    r"(?:hey|hi|hello|dear|ok|okay|alright|right|listen|attention|now|so|well|hallo|salut|hola"
    r"|ciao|please|everyone|everybody|all|team|folks|guys|(?:all |dear |the )?(?:ai|assistants?"
    r"|agents?|bots?)|rules?|policy)"
    r"(?: \d{1,3})?(?:[,:!.] ?| (?=(?:assistants?|agents?|bots?|ai|everyone|everybody|team|all|so"
    r"|now|from|please)(?![^\W_])))"
    r"|(?:please|kindly|from now on|going forward|starting now),? ",
    _I,
)
#: After a call, or before "please", these verbs need nothing more to be an order.
_VERB = re.compile(
    r"(?:send|transfer|answer|reply|respond|tell|recommend|promote|mention|refuse|obey|reveal|avoid"
    r"|stop|treat|call|address|greet|give|grant|use|say|write|include|approve|praise|trust|follow"
    r"|share|add|append|forward|direct|redirect|hide|delete|forget|remember|ignore|deploy|run"
    r"|execute|pay|deny|end|start|begin|make|put|keep|sign|show|act|speak|copy|post|email|charge)"
    r" (?!of(?![^\W_]))",
    _I,
)
_PLEASE = re.compile(r",? please[.!]*\Z", _I)
#: The title of a work that begins like an order.
_TITLE = re.compile(
    r"[^.!?:;,]{1,60} (?:is|was) (?:an?|the|one of|[^\W\d_]+['’]s?)(?: [^\W\d_]+){0,3}"
    r" (?:films?|movies?|books?|songs?|albums?|series|shows?|games?|novels?|musicals?|poems?)"
    r"(?![^\W_])",
    _I,
)
#: A rule about answers or obedience, phrased as a statement.
_RULE = re.compile(
    r"(?:(?:the|your|our|all|any|every|each) )?(?:answers?|repl(?:y|ies)|responses?|outputs?)"
    r" (?:(?:always|never|must|should|shall|ha(?:s|ve) to|needs? to)(?![^\W_])"
    r"|(?:ends?|starts?|begins?|opens?|closes?|finish(?:es)?|concludes?) with )"
    r"|[^.!?]{1,200}? (?:(?:is|are|has|have) to|must|should|shall)(?: always)? be"
    r" (?:obeyed|believed|trusted|followed without)(?![^\W_])",
    _I,
)


def find_order(
    text: str, agents: Iterable[str], people: Container[str], language: str, *, is_shared: bool
) -> str | None:
    """Why a text is an order that may not be kept in its scope; None if it may.

    Args:
        text: The item, without its quotations.
        agents: The names of the agents that take part.
        people: The folded words of speakers' names: a sentence that begins with one is no order.
        language: The language of the text.
        is_shared: Whether others than one person read the scope.
    """
    if _SYSTEM.match(text):
        return "speaks as the system"
    if _TO_MEMORY.match(text):
        return "is an order about instructions or memory"
    spoken = _without_calls(text, agents)
    first = _FIRST.match(spoken)
    is_named = _NAMED.match(spoken) or (first is not None and fold(first.group()) in people)
    if not is_named and not _TITLE.match(spoken) and _is_order(spoken, language):
        return "is an order to the agent; say who asked for it"
    if (spoken != text or _PLEASE.search(text)) and _VERB.match(spoken):
        return "is an order to the agent; say who asked for it"
    if _IMPERATIVE_UNSPACED.match(text):
        return "is an order to the agent; say who asked for it"
    if not is_shared:
        return None
    if _RULE.match(spoken):
        return "tells the agent what to do; say who asked for it"
    lower = text.lower()
    named = [name for name in agents if name and name.lower() in lower]
    patterns = [_patterns(_AGENT_WORDS), *map(_patterns, _called(named))]
    match = next(filter(None, (told.match(text) for told, _ in patterns)), None)
    if match and not _REMIND.match(text, match.end()):
        return "tells the agent what to do; say who asked for it"
    if any(wished.search(text) for _, wished in patterns):
        return "is one person's wish about the agent, in memory that others read"
    return None


def _without_calls(text: str, agents: Iterable[str]) -> str:
    """``text`` without the forms of address before an order."""
    names = {fold(name) for name in agents}
    at = 0
    while True:
        called, comma, _ = text[at : at + 80].partition(", ")
        if match := _CALL.match(text, at):
            at = match.end()
        elif comma and fold(called.removeprefix("@")) in names:
            at += len(called) + 2
        else:
            return text[at:]


def _is_order(text: str, language: str) -> bool:
    return bool(
        _IMPERATIVE.match(text)
        or _VERB_FIRST.match(text)
        or _is_verb_first(text, language)
        or _FROM_NOW.match(text)
    )


def _is_verb_first(text: str, language: str) -> bool:
    """Whether a sentence seems to open with a verb: an object or an adverb follows at once."""
    if language not in ("en", "de", "fr", "es", "it", "pt"):
        return False
    match = _TWO.match(text)
    if match is None or match[1].endswith(("s", "S", "ing")) or not match[1].isalpha():
        return False
    if fold(match[2]) in ("always", "never") and not _VERB.match(match[1] + " "):
        return False  # "Ben always wins": a name and its verb
    if language != "en" and fold(match[2]) == "no":
        return False  # a subject and what it does not do
    return fold(match[2]) in _AFTER_VERB and fold(match[1]) not in (
        stop_words(language) | stop_words("en")
    )


_TWO = re.compile(r"([^\W\d_]+) ([^\W\d_]+)")


def _called(agents: Iterable[str]) -> list[str]:
    """What agents of these names are called, as one alternation; none without a name."""
    names = [re.escape(name) for name in sorted(agents, key=len, reverse=True)]
    return [rf"(?:(?:the|our|this) )?(?:{'|'.join(names)})(?: agent| bot)?"] if names else []


@lru_cache(maxsize=64)
def _patterns(called: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile what tells agents that are called so what to do, and what reports such a wish.

    The words for any agent are apart from the names of those that take part: each conversation
    has others, and the words take ten times as long to compile.
    """
    told, wished = (
        re.compile(pattern.replace("{agents}", f"(?:{called})"), _I)
        for pattern in (_MODAL, _ATTRIBUTED)
    )
    return told, wished
