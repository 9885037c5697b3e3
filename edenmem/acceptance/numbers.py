"""Numbers as they are compared: 1,500 = 1.500 = 1 500 = 1.5k = "fifteen hundred".

A number that can be read in several ways has several readings; two numbers agree if they share
one. Number words are known for a dozen languages; the evidence is read in all of them, an item
only in its own, since a number in one language is an ordinary word in another ("due", "elf").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache

import msgspec

from edenmem.acceptance.words import (
    Word,
    ascii_digits,
    base_of,
    fold,
    language_of,
    word_set,
    words_of,
)

Readings = frozenset[float]

_SCALES = {
    "k": 1e3,
    "tsd": 1e3,
    "mil": 1e3,
    "mille": 1e3,
    "thousand": 1e3,
    "tausend": 1e3,
    "duizend": 1e3,
    "тыс": 1e3,
    "тысяч": 1e3,
    "tys": 1e3,
    "bin": 1e3,
    "hundred": 1e2,
    "hundert": 1e2,
    "m": 1e6,
    "mn": 1e6,
    "mio": 1e6,
    "million": 1e6,
    "millions": 1e6,
    "millionen": 1e6,
    "millones": 1e6,
    "millon": 1e6,
    "milioni": 1e6,
    "milione": 1e6,
    "milhoes": 1e6,
    "milhao": 1e6,
    "miljoen": 1e6,
    "miljoner": 1e6,
    "mln": 1e6,
    "milionow": 1e6,
    "млн": 1e6,
    "миллион": 1e6,
    "миллиона": 1e6,
    "миллионов": 1e6,
    "milyon": 1e6,
    "bn": 1e9,
    "billion": 1e9,
    "mrd": 1e9,
    "milliarden": 1e9,
    "milliard": 1e9,
    "milliards": 1e9,
    "млрд": 1e9,
    "lakh": 1e5,
    "crore": 1e7,
    "万": 1e4,
    "萬": 1e4,
    "만": 1e4,
    "千": 1e3,
    "천": 1e3,
    "百": 1e2,
    "億": 1e8,
    "亿": 1e8,
    "억": 1e8,
}
#: Scales that may also be a unit ("5 m" are five metres): both readings count.
_UNSURE = frozenset({"m", "bin", "mil"})

_NUMBER = re.compile(
    r"(?<![A-Za-zÀ-ʯͰ-ԯ\d])(?<!\d[.,])(?P<figures>\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d{1,2})?(?!\d)"
    r"|\d+(?:[.,]\d+)*)"
    r"(?P<scale>[ \-]?(?:[万萬億亿만억千천百]|[^\W\d_]{1,10}))?(?P<rest>\d千)?"
)
#: A word with letters and figures: a model, a version, an id. Compared as it is written.
_MIXED = re.compile(r"[^\W_\uac00-\ud7a3]*(?:\d[^\W\d_]|[^\W\d_]\d)[^\W_\uac00-\ud7a3]*")

#: Number words by language, folded: value → words. One is left out: it is an article as well.
_WORDS = {
    "en": "2 two couple pair both twins twice double|3 three triple triplets|4 four|5 five"
    " fiver|6 six|7"
    " seven|8 eight|9 nine|10 ten tenner|11 eleven|12 twelve dozen|13 thirteen|14 fourteen"
    "|15 fifteen|16"
    " sixteen|17 seventeen|18 eighteen|19 nineteen|20 twenty|30 thirty|40 forty fourty|50 fifty|60"
    " sixty|70 seventy|80 eighty|90 ninety|100 hundred|1000 thousand|1000000 million|1000000000"
    " billion",
    "de": "2 zwei zwo beide beiden|3 drei|4 vier|5 fünf|6 sechs|7 sieben|8 acht|9 neun|10 zehn|11"
    " elf|12 zwölf dutzend|13 dreizehn|14 vierzehn|15 fünfzehn|16 sechzehn|17 siebzehn|18 achtzehn"
    "|19 neunzehn|20 zwanzig|30 dreißig|40 vierzig|50 fünfzig|60 sechzig|70 siebzig|80 achtzig|90"
    " neunzig|100 hundert|1000 tausend|1000000 million millionen|1000000000 milliarde milliarden",
    "fr": "2 deux|3 trois|4 quatre|5 cinq|6 six|7 sept|8 huit|9 neuf|10 dix dizaine|11 onze|12"
    " douze douzaine|13 treize|14 quatorze|15 quinze quinzaine|16 seize|20 vingt vingts vingtaine"
    "|30 trente|40 quarante|50 cinquante|60 soixante|70 septante|80 huitante|90 nonante|100 cent"
    " cents centaine|1000 mille|1000000 million millions|1000000000 milliard milliards",
    "es": "2 dos ambos|3 tres|4 cuatro|5 cinco|6 seis|7 siete|8 ocho|9 nueve|10 diez|11 once|12"
    " doce docena|13 trece|14 catorce|15 quince|16 dieciséis|17 diecisiete|18 dieciocho|19"
    " diecinueve|20 veinte|21 veintiuno veintiún|22 veintidós|23 veintitrés|24 veinticuatro|25"
    " veinticinco|26 veintiséis|27 veintisiete|28 veintiocho|29 veintinueve|30 treinta|40 cuarenta"
    "|50 cincuenta|60 sesenta|70 setenta|80 ochenta|90 noventa|100 cien ciento|200 doscientos"
    " doscientas|300 trescientos trescientas|400 cuatrocientos|500 quinientos quinientas|600"
    " seiscientos seiscientas|700 setecientos setecientas|800 ochocientos ochocientas|900"
    " novecientos novecientas|1000 mil"
    "|1000000 millón millones",
    "it": "2 due entrambi|3 tre|4 quattro|5 cinque|6 sei|7 sette|8 otto|9 nove|10 dieci|11 undici"
    "|12 dodici dozzina|13 tredici|14 quattordici|15 quindici|16 sedici|17 diciassette|18 diciotto"
    "|19 diciannove|20 venti|30 trenta|40 quaranta|50 cinquanta|60 sessanta|70 settanta|80 ottanta"
    "|90 novanta|100 cento|200 duecento|300 trecento|500 cinquecento|1000 mille mila|2000 duemila"
    "|1000000 milione milioni",
    "pt": "2 dois duas ambos|3 três|4 quatro|5 cinco|6 seis meia|7 sete|8 oito|9 nove|10 dez|11"
    " onze|12 doze dúzia|13 treze|14 catorze quatorze|15 quinze|16 dezesseis dezasseis|17"
    " dezessete dezassete|18 dezoito|19 dezenove dezanove|20 vinte|30 trinta|40 quarenta|50"
    " cinquenta|60 sessenta|70 setenta|80 oitenta|90 noventa|100 cem cento|200 duzentos duzentas"
    "|300 trezentos trezentas|400 quatrocentos|500 quinhentos quinhentas|600 seiscentos|700"
    " setecentos|800 oitocentos|900 novecentos|1000 mil|1000000 milhão milhões",
    "nl": "2 twee beide|3 drie|4 vier|5 vijf|6 zes|7 zeven|8 acht|9 negen|10 tien|11 elf|12 twaalf"
    " dozijn|13 dertien|14 veertien|15 vijftien|16 zestien|17 zeventien|18 achttien|19 negentien"
    "|20 twintig|30 dertig|40 veertig|50 vijftig|60 zestig|70 zeventig|80 tachtig|90 negentig|100"
    " honderd|1000 duizend|1000000 miljoen",
    "pl": "2 dwa dwie dwóch dwoje|3 trzy trzech|4 cztery czterech|5 pięć pięciu|6 sześć sześciu|7"
    " siedem siedmiu|8 osiem ośmiu|9 dziewięć dziewięciu|10 dziesięć dziesięciu|11 jedenaście|12"
    " dwanaście|13 trzynaście|14 czternaście|15 piętnaście|16 szesnaście|17 siedemnaście|18"
    " osiemnaście|19 dziewiętnaście|20 dwadzieścia|30 trzydzieści|40 czterdzieści|50 pięćdziesiąt"
    "|60 sześćdziesiąt|70 siedemdziesiąt|80 osiemdziesiąt|90 dziewięćdziesiąt|100 sto|200 dwieście"
    "|300 trzysta|400 czterysta|500 pięćset|600 sześćset|700 siedemset|800 osiemset|900"
    " dziewięćset|1000 tysiąc tysiące tysięcy|1000000 milion miliony milionów",
    "ru": "2 два две двух двое оба|3 три трёх трое|4 четыре четырёх четверо|5 пять пяти пятеро|6"
    " шесть шести|7 семь семи|8 восемь восьми|9 девять девяти|10 десять десяти|11 одиннадцать|12"
    " двенадцать дюжина|13 тринадцать|14 четырнадцать|15 пятнадцать|16 шестнадцать|17 семнадцать"
    "|18 восемнадцать|19 девятнадцать|20 двадцать двадцати|30 тридцать тридцати|40 сорок сорока|50"
    " пятьдесят|60 шестьдесят|70 семьдесят|80 восемьдесят|90 девяносто|100 сто ста|200 двести|300"
    " триста|400 четыреста|500 пятьсот|600 шестьсот|700 семьсот|800 восемьсот|900 девятьсот|1000"
    " тысяча тысячи тысяч|1000000 миллион миллиона"
    " миллионов",
    "uk": "2 два дві двох двоє|3 три трьох|4 чотири чотирьох|5 п'ять|6 шість|7 сім|8 вісім|9"
    " дев'ять|10 десять|11 одинадцять|12 дванадцять|15 п'ятнадцять|20 двадцять|30 тридцять|40"
    " сорок|50 п'ятдесят|100 сто|1000 тисяча тисячі тисяч|1000000 мільйон",
    "sv": "2 två båda|3 tre|4 fyra|5 fem|6 sex|7 sju|8 åtta|9 nio|10 tio|11 elva|12 tolv dussin|13"
    " tretton|14 fjorton|15 femton|16 sexton|17 sjutton|18 arton|19 nitton|20 tjugo|30 trettio|40"
    " fyrtio|50 femtio|60 sextio|70 sjuttio|80 åttio|90 nittio|100 hundra|1000 tusen|1000000"
    " miljon miljoner",
    "tr": "2 iki|3 üç|4 dört|5 beş|6 altı|7 yedi|8 sekiz|9 dokuz|10 on|11 onbir|12 oniki düzine|20"
    " yirmi|30 otuz|40 kırk|50 elli|60 altmış|70 yetmiş|80 seksen|90 doksan|100 yüz|1000 bin"
    "|1000000 milyon",
    "ar": "2 اثنان اثنين|3 ثلاثة ثلاث|4 أربعة أربع|5 خمسة خمس|6 ستة ست|7 سبعة سبع|8 ثمانية ثماني|9"
    " تسعة تسع|10 عشرة عشر|20 عشرون عشرين|30 ثلاثون ثلاثين|100 مئة مائة|200 مئتان مئتين مائتين"
    "|1000 ألف آلاف ألفا|2000 ألفين ألفان|40 أربعون أربعين|50 خمسون خمسين|60 ستون ستين|70"
    " سبعون سبعين|80 ثمانون"
    " ثمانين|90 تسعون تسعين|1000 ألف آلاف",
    "hi": "2 दो|3 तीन|4 चार|5 पाँच पांच|6 छह छः|7 सात|8 आठ|9 नौ|10 दस|11 ग्यारह|12 बारह|15"
    " पंद्रह|20"
    " बीस|30 तीस|40 चालीस|50 पचास|100 सौ|1000 हज़ार|100000 लाख",
    "ko": "2 둘 두|3 셋 세|4 넷 네|5 다섯|6 여섯|7 일곱|8 여덟|9 아홉|10 열|11 열한|12 열두"
    "|20 스물 스무"
    "|30 서른|40 마흔|50 쉰",
}
_ORDINALS = {
    "en": "1 first|2 second|3 third|4 fourth|5 fifth|6 sixth|7 seventh|8 eighth|9 ninth|10 tenth"
    "|11 eleventh|12 twelfth|13 thirteenth|14 fourteenth|15 fifteenth|16 sixteenth|17 seventeenth"
    "|18 eighteenth|19 nineteenth|20 twentieth|30 thirtieth",
    "de": "1 erste ersten erster|2 zweite zweiten|3 dritte dritten dritter|4 vierte vierten|5"
    " fünfte fünften|6 sechste sechsten|7 siebte siebten|8 achte achten|9 neunte neunten|10 zehnte"
    " zehnten|11 elfte elften|12 zwölfte zwölften|20 zwanzigste zwanzigsten",
    "fr": "1 premier première|2 deuxième|3 troisième|4 quatrième|5 cinquième|6 sixième|7 septième"
    "|8 huitième|9 neuvième|10 dixième",
    "es": "1 primero primera primer|2 segundo segunda|3 tercero tercera tercer|4 cuarto cuarta|5"
    " quinto quinta|6 sexto|7 séptimo|8 octavo|9 noveno|10 décimo",
    "it": "1 primo prima|2 secondo seconda|3 terzo terza|4 quarto quarta|5 quinto quinta",
    "pt": "1 primeiro primeira|2 segundo segunda|3 terceiro terceira|4 quarto|5 quinto",
    "ar": "1 أول الأول الأولى الواحدة|2 الثانية|3 الثالثة|4 الرابعة|5 الخامسة|6 السادسة|7"
    " السابعة|8 الثامنة|9"
    " التاسعة|10 العاشرة",
    "ru": "1 первый первая первого первое|2 второй второе второго|3 третий третье третьего|4"
    " четвёртый|5 пятый пятое пятого|10 десятого|15 пятнадцатого|20 двадцатого",
}
_AND = frozenset({"and", "und", "et", "y", "e", "en", "och", "i", "ve", "и"})
#: One is an article in most languages: it counts only after twenty, thirty and so on.
_ONES = word_set("one ein eins un une uno una um uma een en jeden один одна bir")
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
#: What an ideograph is counted with: after these a numeral is a number and not part of a word.
_COUNTED = re.compile(
    "[个個名岁歳年月日号號点點時时小天週周人本匹只隻枚杯回階层楼元円块塊次台辆公分度%％]"
)


class Number(msgspec.Struct, frozen=True):
    """A number in a text: as written, where, and what it may mean."""

    written: str
    start: int
    end: int
    readings: Readings


def find_figures(text: str) -> Iterator[Number]:
    """The numbers that a text writes with digits. ``text`` has `ascii_digits`."""
    for match in _NUMBER.finditer(text):
        written = match["scale"] or ""
        name = fold(written.strip(" -"))
        scale = _SCALES.get(name) or _scale_words().get(name)
        plain = _read(match["figures"])
        if scale is None or (written[0] in " -" and fold(written.strip(" -")) == "m"):
            end = match.end("figures")
            if written and written[0] not in " -" and _is_name_part(written):
                continue  # 3D, 4K: compared as it is written
            yield Number(match["figures"], match.start(), end, plain)
            continue
        rest = 1000 * int(match["rest"][0]) if match["rest"] else 0  # 2万8千
        scaled = frozenset(round(value * scale, 6) + rest for value in plain)
        sure = fold(written.strip(" -")) not in _UNSURE
        yield Number(match.group(), match.start(), match.end(), scaled if sure else scaled | plain)


@cache
def _scale_words() -> dict[str, float]:
    """The words for a thousand and more in all languages, besides the short forms."""
    return {
        word: value
        for language in _WORDS
        for word, value in _table(language).items()
        if value in (1000.0, 1e5, 1e6, 1e9) and word not in _UNSURE
    }


def _is_name_part(letters: str) -> bool:
    return letters.isupper() and len(letters) <= 2


def find_mixed(text: str) -> list[str]:
    """The words of letters and figures ("gpt-4o", "A320"), folded. ``text`` has `ascii_digits`."""
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
    return {
        fold(word): float(entry.split()[0])
        for entry in _WORDS.get(language, "").split("|")
        for word in entry.split()[1:]
    }


@cache
def _ordinals() -> dict[str, float]:
    return {
        base_of(word): float(entry.split()[0])
        for entries in _ORDINALS.values()
        for entry in entries.split("|")
        for word in entry.split()[1:]
    }


#: "por cento": what follows is a unit.
_PER = re.compile(r"\b(?:por|per|pour) \Z", re.IGNORECASE)


def find_number_words(
    text: str, language: str, words: Sequence[Word] | None = None, *, is_lenient: bool = False
) -> Iterator[Number]:
    """The numbers that a text writes in words of a language; if lenient, with endings too."""
    table = _table(language)
    if not table:
        return
    run: list[tuple[Word, list[float]]] = []
    for word in words_of(text) if words is None else words:
        before = text[max(word.start - 6, 0) : word.start]
        is_unit = before[-2:] in ("r ", "R ") and _PER.search(before)
        values = [] if is_unit else _values(word.folded, table)
        if values and values[0] >= 100 and before.rstrip()[-1:].isdigit():
            values = []  # 187 mil: read with its figures
        if not values and is_lenient:
            values = _inflected(word.folded, language)
        joins = bool(run) and not text[run[-1][0].end : word.start].strip(" -‐\u00a0")
        if (
            joins
            and _last(run) in (_TENS | {10.0} if language == "tr" else _TENS)
            and (word.folded in _ONES or (language == "tr" and _TURKISH_ONE.fullmatch(word.folded)))
        ):
            values = [1.0]
        if values and (not run or joins) and not _is_list(run, values):
            run.append((word, values))
        elif run and joins and word.folded in _AND and run[-1][1]:
            run.append((word, []))
        elif run:
            yield _compose(text, run)
            run = [(word, values)] if values else []
    if run:
        yield _compose(text, run)


def _last(run: list[tuple[Word, list[float]]]) -> float:
    """The last value of a run, before an "and" or not."""
    return next((values[-1] for _, values in reversed(run) if values), 0.0)


def _is_list(run: list[tuple[Word, list[float]]], values: list[float]) -> bool:
    """Whether "and" begins another number: "two and three", but "a hundred and three"."""
    return (
        len(run) > 1
        and not run[-1][1]
        and (run[-2][1][-1] < 100 and not (run[-2][1][-1] in _TENS and values[0] < 20))
    )


def _values(word: str, table: dict[str, float]) -> list[float]:
    """What a word counts, or the parts of one that is written together ("zweiundzwanzig")."""
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
def _values_by_language(word: str) -> tuple[tuple[str, list[float]], ...]:
    """What a word counts, perhaps with an ending, in each language in which it does."""
    read = (
        (language, _values(word, _table(language)) or _inflected(word, language))
        for language in _WORDS
    )
    return tuple((language, values) for language, values in read if values)


def is_number_word(word: str, language: str) -> bool:
    """Whether a folded word is a number word of a language."""
    return bool(_values(word, _table(language)))


@cache
def languages() -> frozenset[str]:
    """The languages whose number words are known."""
    return frozenset({*_WORDS, "zh", "ja"})


def has_hidden_number(word: str, language: str) -> bool:
    """Whether a folded word holds a number word of a language, but is not read as a number."""
    table = _table(language)
    return (
        len(word) > 5
        and any(len(name) > 4 and name in word for name in table)
        and not (_values(word, table) or _inflected(word, language))
    )


_DOZENS = ("doz", "dutz", "docen", "douz", "duzi", "duss", "tuzin", "дюжин", "duzin")


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
            elif value == 12 and 1 < current < 100 and word.folded.startswith(_DOZENS):
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


def find_han_numbers(text: str) -> Iterator[Number]:
    """The numbers that a text writes in ideographs and counts something with."""
    for match in _HAN_NUMBER.finditer(text):
        if text[max(match.start() - 1, 0) : match.start()].isdecimal():
            continue  # 7万: read with its figures
        if _COUNTED.match(text, match.end()) or len(match.group()) > 1:
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


#: Figures with what joins them; and those that are one number, whose parts say nothing alone.
_JOINED = re.compile(r"\d(?:[\d.,:/-]*\d)?")
_ONE_NUMBER = re.compile(r"\d+(?:[.,]\d+)?|\d{1,3}(?:[.,]\d{3})+(?:[.,]\d+)?")


_SHORT = re.compile(r"(?<![\d.,])(\d{1,3})k\b", re.IGNORECASE)
_TENTHS = re.compile("([一二三四五六七八九])割")
_HALF_YEAR = re.compile(
    r"\b(?:half a year|halbe[sn] jahr|half jaar|medio año|mezz'anno|meio ano|pół roku"
    r"|полгода|yarım yıl)\b"
    r"|半年|반년",
    re.IGNORECASE,
)


def spoken_decimals(text: str) -> list[float]:
    """The decimals that a Chinese text writes in ideographs: 一米七八, 一百零二点五."""
    return [
        float(f"{a:.0f}.{b:.0f}")
        for match in _SPOKEN_DECIMAL.finditer(text)
        for a in _han_value(match[1])
        for b in _han_value(match[2])
    ]


def count_things(text: str) -> frozenset[float]:
    """The numbers of a text, each in its likeliest reading."""
    digits = ascii_digits(text)
    found = [max(number.readings) for number in find_figures(digits) if number.readings]
    language = language_of(text)
    found += [max(number.readings) for number in find_number_words(text, language, is_lenient=True)]
    if language in ("zh", "ja"):
        found += [max(number.readings) for number in find_han_numbers(text)]
        found += spoken_decimals(text)
    return frozenset(found)


def said_numbers(texts: Iterable[str]) -> frozenset[float]:
    """All numbers that texts may mean, in digits or in words of any language known here."""
    found: set[float] = set()
    for text in texts:
        digits = ascii_digits(text)
        for number in find_figures(digits):
            found |= number.readings
        found |= {float(match[1]) for match in _SHORT.finditer(digits)}  # 32k: or kilometres
        found |= {
            10.0 * value for match in _TENTHS.finditer(text) for value in _han_value(match[1])
        }
        if _HALF_YEAR.search(text):
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
            for language, values in _values_by_language(word):
                spoken.add(language)
                found.update(values)
        for language in spoken:
            for number in find_number_words(text, language, words, is_lenient=True):
                found |= number.readings
        found |= {ten + one for ten in found & _TENS for one in placed if one < 10}
        found |= _fractions(text, folded, found)
    return frozenset(found)


#: Other stems of number words in languages that inflect them, folded when they are read.
_STEMS = {
    "pl": "20 dwudziest|30 trzydziest|40 czterdziest|50 pięćdziesięci|60 sześćdziesięci"
    "|70 siedemdziesięci|80 osiemdziesięci|90 dziewięćdziesięci|100 stu|200 dwustu|300 trzystu",
    "ru": "50 пятидесят|60 шестидесят|70 семидесят|80 восьмидесят|11 одиннадцат|12 двенадцат"
    "|15 пятнадцат|16 шестнадцат|17 семнадцат|18 восемнадцат|19 девятнадцат|1000 тысяч",
    "tr": "",
    "uk": "",
    "ar": "",
    "hi": "",
}


def _inflected(word: str, language: str) -> list[float]:
    """What a number word with an ending counts ("dokuzda", "dwudziestu")."""
    if language not in _STEMS:
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
    for entry in filter(None, _STEMS[language].split("|")):
        value, stem = entry.split()
        found[fold(stem)] = float(value)
    return found


_HALF = (
    "साढ़े полутора half halb halbe halber halbes anderthalb hälfte demi demie moitié medio"
    " media mitad mezzo"
    " mezza metà meio meia metade halve helft pół pol połowa połowę halv yarım bucuk пол половина"
    " половину половиной пів نصف आधा"
)


@cache
def _half() -> frozenset[str]:
    return frozenset(map(fold, _HALF.split()))


_POINT = re.compile(
    r"(?<![^\W_])(?P<whole>[^\W\d_]{1,12} )?(?:point|komma|virgule|coma|virgola|vírgula|komma)"
    r"(?P<rest>(?: [^\W\d_]{1,12}){1,4})",
    re.IGNORECASE,
)
_DIGIT_WORDS = frozenset(map(float, range(10)))


def _fractions(text: str, folded: frozenset[str] | set[str], found: set[float]) -> set[float]:
    """Halves and decimals in words: "half a million", "point seven eight", "doze e meio"."""
    more: set[float] = set()
    if folded & _half() or "半" in text or "½" in text or "반" in text:
        more |= {0.5, 50.0, 500.0, 500_000.0, 30.0}
        more |= {value + 0.5 for value in found if value < 1000}
        more |= {
            (value + 0.5) * scale for value in found if value < 100 for scale in (1e2, 1e3, 1e6)
        }
    if folded & {
        "anderthalb",
        "anderthalbe",
        "eineinhalb",
        "poltora",
        "полтора",
        "полторы",
        "полутора",
    }:
        more |= {1.5, 1500.0, 1_500_000.0}
    more |= (
        {0.25, 25.0, 15.0}
        if folded & {"quarter", "viertel", "quart", "cuarto", "quarto"}
        else set()
    )
    for match in _POINT.finditer(text):
        for language in _WORDS:
            table = _table(language) | {
                "zero": 0.0,
                "null": 0.0,
                "one": 1.0,
                "eins": 1.0,
                "un": 1.0,
            }
            rest = [table.get(fold(word)) for word in match["rest"].split()]
            digits = [value for value in rest if value in _DIGIT_WORDS]
            if rest and rest[0] in _DIGIT_WORDS:
                whole = table.get(fold((match["whole"] or "zero").strip()), 0.0)
                decimals = "".join(str(int(value)) for value in digits if value is not None)
                more |= {float(f"{int(whole)}.{decimals}"), float(f"{int(whole)}.{decimals[:1]}")}
    return more
