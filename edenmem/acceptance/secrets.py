"""Secrets that must not be remembered: keys, passwords named as such, card and account numbers.

Ids, hashes and wallet addresses are public by nature and are no secrets.
"""

from __future__ import annotations

import re
import unicodedata

from edenmem.acceptance.words import ascii_digits, fold, language_of, stop_words, word_set

_I = re.IGNORECASE

#: Keys and tokens, by the forms that their issuers publish.
_KEYS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-(?:ant-|proj-|or-|svcacct-|live-|test-)?[A-Za-z0-9_-]{16,}"
    r"|(?:sk|rk|pk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}"
    r"|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{20,}|dop_v1_[a-f0-9]{32,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}"
    r"|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{30,}|shpat_[a-f0-9]{30,}"
    r"|edm_[A-Za-z0-9]{4,64}_[A-Za-z0-9_-]{16,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,}|(?:bot)?\d{8,10}:AA[A-Za-z0-9_-]{30,}"
    r")|-----BEGIN [A-Z ]{0,30}PRIVATE KEY"
    r"|\b[a-z][a-z0-9+]{1,12}://[^\s:/@]{1,80}:[^\s:/@]{3,200}@"
    r"|\bBearer [A-Za-z0-9._~+/-]{20,}"
)

#: What names a secret, in the main languages; an ending or a particle may follow.
_NAMED = re.compile(
    r"(?:(?<![^\W_])(?:pass ?words?|passcodes?|pass ?phrases?|passwd|pwd|pins?(?= ?(?:codes?"
    r"|numbers?)?\b)"
    r"|pin[ -]?(?:code|number|nummer)|cvv2?|cvc2?|security code|door ?code|gate code|alarm code"
    r"|access code|entry code|unlock code|backup codes?|recovery codes?|one-time codes?|otp"
    r"|seed ?phrases?|(?:recovery|backup|seed) (?:phrases?|words?)|wallet seed|mnemonics?"
    r"|secret (?:access key|key|word|recovery phrase)|client secret|private key|access key"
    r"|(?:safe|lock|vault|locker|garage) (?:code|combination)"
    r"|code (?:of|for|to) [^.!?]{0,30}\b(?:safe|lock|vault|locker|door|gate|garage|alarm)"
    r"|api[ -]?keys?"
    r"|api[ -]?tokens?|access tokens?|auth tokens?"
    r"|pass?wort|passwörter|kennwort|kennwörter|geheimzahl|zugangscode|türcode|api-schlüssel"
    r"|mot de passe|mots de passe|code (?:secret|d.accès|pin)|mdp|clé (?:api|secrète|privée)"
    r"|contraseñas?|clave(?: secreta| de acceso| api)?|senhas?|palavra-passe|palavra passe"
    r"|wachtwoord(?:en)?|toegangscode|pincode|lösenord|hasło|hasła|hasłem|şifre\w{0,6}"
    r"|parola\w{0,6}"
    r"|codice (?:pin|segreto|di accesso)"
    r"|парол[а-я]{0,3}|пин-?код[а-я]{0,3}|секретн[а-я]{1,3} ключ[а-я]{0,3})(?![^\W_])"
    r"|密码|密碼|口令|暗証番号|パスワード|暗号鍵|비밀번호|비번|암호|पासवर्ड|كلمة (?:ال)?سر"
    r"|كلمة (?:ال)?مرور|كلمه السر|رمز المرور"
    r"|รหัสผ่าน)",
    _I,
)
#: What may stand between the name and the secret: "for the router is", ":", "ist", "es", "は".
_LINK = re.compile(
    r"(?:[:=→]|(?<![^\W_])(?:is|was|are|reads|called|ist|sind|lautet|heißt|heisst|war"
    r"|est|sont|s['’]appelle|es|son|se llama|si chiama|era|è|é|"
    r"jest|to|är|это|—|–|-|है|هي|هو|คือ)(?![^\W_])|是|为|為|は|が|는|은|가|이)\s*:?\s*",
    _I,
)
_VALUE = re.compile(
    r"[\"'“”„«»「」『』`]?(?P<value>[^\s\"“”„«»「」『』`,;，。、]{1,100})[\"'“”„«»「」『』`]?"
)
_QUOTED_VALUE = re.compile(r"\s*[\"'“„«「『`](?P<value>[^\"“”„«»「」『』`]{3,120})[\"'”“»」』`]")
_PHRASE = re.compile(
    r"(?:(?:\d{1,2}[.)]? ?)?[a-z]{3,10}[ ,]+){5,}(?:\d{1,2}[.)]? ?)?[a-z]{3,10}", _I
)
#: What is said of a password without saying it.
_ABOUT = word_set(
    "weak strong secure insecure lost expired wrong secret unknown compromised leaked stored saved"
    " kept required needed missing invalid old new same reset changed forgotten shared hidden empty"
    " correct incorrect valid private safe schwach stark sicher verloren falsch geheim gespeichert"
    " abgelaufen vergessen perdu oublié expiré faible débil perdida olvidada segura guardada nuevo"
    " nueva perso dimenticata esquecida vergeten verlopen забыт утерян слабый istekao not in on"
    " sicura salvata debole fraca segura guardada"
    " used annoying boring long short easy hard simple complex characters letters signs zeichen"
    " caractères caracteres caratteri"
)

#: After or before the name, these make it a thing or a rule about secrets.
_THING = re.compile(
    r" (?:managers?|polic(?:y|ies)|rotations?|rules?|resets?|changes?|hints?|prompts?|vaults?"
    r"|fields?|forms?|generators?|strength|lengths?|requirements?|managements?|storage"
    r"|hash(?:es|ing)?"
    r"|expiry|protection|days?|pages?|process|lists?|collections?)(?![^\W_])",
    _I,
)
_THING_BEFORE = re.compile(
    r"(?:gestionnaire|gestor|gestore|gerenciador|менеджер) (?:de |di )?\Z", _I
)
_THING_NAMES = word_set("1password keepass2")

#: "hunter2 is Anna's …", "sunflower as the …": what stands before the name, and the link.
_VALUE_FIRST = re.compile(
    r"(?P<value>\S+) (?P<link>is|was|as|ist|war|als|est|comme|es|como|è|come|é|jest|jako|är|som"
    r"|—|–|=) ",
    _I,
)
_OWNED = re.compile(
    r"(?:(?:[^\W_]+['’]s|the|her|his|their|an?|das|ihr|sein|le|la|el|il|o|a|su|son|il suo)"
    r" )?(?:[^\W_]+ ){0,2}\Z",
    _I,
)
#: What an opaque value follows; other values of it are no secrets.
_OPAQUE = re.compile(
    r"(?<!public )(?<![^\W_])(?:secrets?|keys?|tokens?)(?![^\W_])[^.!?]{0,40}?(?:[:=]| is| are)"
    r" ?[\"'`]?(?P<value>(?!0x)[A-Za-z0-9+/_=-]{16,200})",
    _I,
)
#: A user's name and password side by side.
_PAIR = re.compile(
    r"(?<![^\W_])(?:credentials?|log-?ins?|log ins?|sign-?in|zugangsdaten|anmeldedaten|identifiants"
    r"|credenciales|credenziali|credenciais|логин)(?![^\W_])[^.!?]{0,60}?"
    r"(?:[:=]|(?<![^\W_])(?:is|are|ist|sind|lauten|est|sont|es|son|sono|são)(?![^\W_])) ?"
    r"(?P<user>[^\s/,:]{2,60})(?P<by>\s?[/:,|]\s?| (?:and|with|und|mit|et|avec|y|con|e|com|и) )"
    r"(?P<value>[^\s/,]{2,100})",
    _I,
)
_ADMIN = word_set("root admin administrator user")
_OPENS = re.compile(
    r"(?<![^\W_])(?:safe|lock|padlock|vault|locker|door|gate|garage|alarm|phone|tablet"
    r"|laptop|tresor"
    r"|tür|coffre(?:-fort)?|porte|caja fuerte|puerta|cassaforte|porta|cofre|сейф)(?![^\W_])"
    r"[^.!?]{0,30} (?:opens?|unlocks?|is (?:opened|unlocked)|öffnet(?: sich)?|s['’]ouvre|se abre"
    r"|si apre|abre|открывается) (?:with|by|using|on|mit|avec|con|com) (?:the )?(?:code )?"
    r"(?P<value>\S{3,40})(?!\S)(?! (?!and |und |et |y |e )[^\W_])",
    _I,
)
_SOCIAL = re.compile(
    r"(?<![^\W_])(?:social security|ssn|social insurance|sozialversicherung\w{0,20}"
    r"|sécurité sociale|seguridad social)(?![^\W_])",
    _I,
)
_SOCIAL_NUMBER = re.compile(r"(?<!\d)\d(?:[ .-]?\d){8,14}(?!\d)")

#: Groups may also be parted by points or slashes, where the whole is grouped as on a card.
_CARD = re.compile(
    r"(?<![\d.])\d(?:[ -]?\d){12,18}(?!\d)"
    r"|(?<!\d)\d{4}[./_·–][\d./_·–]{9,18}(?!\d)"
)
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Z0-9])", _I)
#: Prefix → lengths of the large card networks (ISO/IEC 7812 ranges as the networks publish them).
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
    """What kind of secret a text holds, without repeating it; None if there is none."""
    text = unicodedata.normalize("NFKC", text)
    if _KEYS.search(text):
        return "an access key"
    if any(_is_card(re.sub(r"\D", "", match.group())) for match in _CARD.finditer(text)):
        return "a card number"
    if any(_is_iban(match.group()) for match in _IBAN.finditer(text)):
        return "a bank account number"
    if _SOCIAL.search(text) and _SOCIAL_NUMBER.search(text):
        return "a social security number"
    return "a password or code" if _has_named_secret(text) else None


#: What a message may call a secret by, besides `_NAMED`: a lock, an alarm, a login.
_LOCKED = re.compile(
    r"(?<![^\W_])(?:(?:pad)?lock|alarm|(?:wifi|wi-fi|wlan|api)[ -]?\w*"
    r"|tokens?|key|codes?|safe"
    r"|alarm\w*|schloss|tresor|serrure|cadenas|coffre|candado|caja fuerte|buzón|código"
    r"|código|lucchetto|codice"
    r"|cadeado|slot|sleutel|kluis|kod\w*|zamek|zamk\w+|lås|anahtar\w*|kilit\w*|kasa\w*"
    r"|şifre\w*|parola\w*|замо\w+|сейф\w*|код\w*)"
    r"(?![^\W_])|رمز|قفل|القفل|पिन|पासकोड|ताल|รหัส|หมุน|비번|口令|密|锁|鎖|鍵|金庫|番号|パス",
    _I,
)
_LOGIN = re.compile(r"(?<![^\W_])(?:log-?ins?|portal)(?![^\W_])", _I)
_SAID_VALUE = re.compile(r"[^\s\"'“”„«»「」『』`,;:，。、؛،()]{3,60}")
#: How far before a value its name may stand.
_NAME_NEAR = 45


def flatten(text: str) -> str:
    """``text`` as values are looked for in it: in lower case, with the figures of all scripts."""
    return ascii_digits(text).casefold()


def said_values(text: str) -> frozenset[str]:
    """What a message gives as a password, a code or the like."""
    flat = flatten(text)
    found = set()
    for match in _SAID_VALUE.finditer(flat):
        value = re.sub(r"[^\x21-\x7e\w]+\Z|[.!?]+\Z", "", match.group())
        value = re.split(r"[\u3040-\u30ff\u3400-\u9fff\u0e01-\u0e4f]+\Z", value)[0]
        before = flat[max(match.start() - _NAME_NEAR, 0) : match.start()]
        before = re.split(r"[.!?。！？](?=\s|\Z)", before)[-1]
        is_strict = bool(_NAMED.search(before))
        is_locked = is_strict or _LOCKED.search(before)
        is_login = not value.isalnum() and _LOGIN.search(before)
        if (is_locked or is_login) and _is_code(value, is_strict=is_strict):
            found.add(value)
    return frozenset(found)


def _is_code(value: str, *, is_strict: bool) -> bool:
    """Whether a word looks like a code: figures alone, or with letters or signs among them."""
    digits = sum(sign.isdigit() for sign in value)
    if re.fullmatch(r"\d+(?:-\d+)*", value):
        return 4 <= digits <= 10 or (digits >= 3 and "-" in value)
    if re.fullmatch(r"[^\W\d_]+[-']?|\d+(?:[.,:]\d+)+|\d+[^\W\d_]{1,3}|v?\d+(?:\.\d+)+", value):
        return False
    signs = sum(not sign.isalnum() and sign not in "-'’./" for sign in value)
    return len(value) >= 5 and bool(
        digits >= 2 or (signs >= 1 and digits >= 1) or (is_strict and signs)
    )


def _has_named_secret(text: str) -> bool:
    if any(_is_cryptic(match["value"]) for match in _OPAQUE.finditer(text)):
        return True
    if any(_is_cryptic(match["value"]) for match in _OPENS.finditer(text)):
        return True
    for match in _PAIR.finditer(text):
        is_login = "/" in match["by"] or fold(match["user"]) in _ADMIN
        if is_login or _is_cryptic(match["value"]):
            return True
    names = list(_NAMED.finditer(text))
    if not names:
        return False
    language = language_of(text)
    common = _ABOUT | stop_words("en") | stop_words(language)
    return any(
        _is_told(text[match.end() : match.end() + 300], text[: match.start()][-80:], common)
        for match in names
    )


def _is_told(rest: str, before: str, common: frozenset[str]) -> bool:
    """Whether the words around "password" say what it is."""
    if quoted := _QUOTED_VALUE.match(rest):
        return " " not in quoted["value"] or bool(_PHRASE.search(quoted["value"]))
    if (
        bare := re.match(
            r"\s?(?:\([^)]{0,40}\)\s)?(?:code\s|number\s|nummer\s)?\s?(?P<value>[^\s,;.]{3,40})",
            rest,
        )
    ) and _is_cryptic(bare["value"]):
        return True
    is_thing = bool(_THING.match(rest) or _THING_BEFORE.search(before))
    if not is_thing and _is_told_before(before, common):
        return True
    clause = re.match(r"[^.!?。！？]{0,80}", rest)
    end = clause.end() if clause else 0
    return any(
        _is_value(rest[link.end() :], common, link.group().strip(), is_thing=is_thing)
        for link in _LINK.finditer(rest, 0, end)
    )


def _is_told_before(before: str, common: frozenset[str]) -> bool:
    """Whether the value stands before the name: "hunter2 is Anna's password"."""
    clause = re.split(r"[.!?;] ", before)[-1]
    for match in _VALUE_FIRST.finditer(clause):
        value = match["value"].strip("\"'“”„«»`,")
        between = clause[match.end() :]
        if _is_cryptic(value) and between.count(" ") <= 4:
            return True
        if not _OWNED.match(clause, match.end()) or fold(value) in common:
            continue
        if fold(match["link"]) in ("as", "als", "comme", "como", "come", "jako", "som"):
            return True
        ahead = [fold(word) for word in clause[: match.start()].split()]
        if between and (not ahead or (len(ahead) >= 2 and not common.intersection(ahead))):
            return True
    return False


def _is_value(tail: str, common: frozenset[str], link: str, *, is_thing: bool) -> bool:
    """Whether what follows "is" is a secret, and nothing that is said about one."""
    value = _VALUE.match(tail)
    if value is None:
        return False
    said = value["value"].rstrip(".!?।")
    if _is_cryptic(said):
        return fold(said) not in _THING_NAMES
    if is_thing:
        return False
    if _QUOTED_VALUE.match(tail) or _PHRASE.match(tail):
        return True
    if link == "to":
        return False
    if not tail[value.end() :].strip(" .!?。！？)"):
        return len(said) > 2 and said.casefold() not in _ABOUT
    words = [fold(word) for word in re.split(r"[.!?,;。！？]", tail, maxsplit=1)[0].split()]
    said_so = [word for word in words if word not in common and not word.endswith(_ENDINGS)]
    left = sum(word in common and word not in _ABOUT for word in words)
    return len(words) <= 12 and len(said_so) >= 2 + left and left <= 1


#: What describes: "rarely changed", "expiring".
_ENDINGS = ("ed", "ing", "ly", "able")


def _is_cryptic(value: str) -> bool:
    """Whether a word looks made to be guessed by nobody: letters with digits, or mixed signs."""
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
    """Whether the check digit of ISO/IEC 7812-1 (Luhn) is right."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _is_iban(written: str) -> bool:
    """Whether the check digits of ISO 13616 (mod 97) are right; a word may trail the number."""
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
