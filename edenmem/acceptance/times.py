"""Times of day, spans and seasons: those that a text writes as such, and those that it may mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from edenmem.acceptance.numbers import said_numbers
from edenmem.acceptance.words import ascii_digits, fold_in_place

_TIME = re.compile(
    r"(?<![\d.:,])(?P<h>\d{1,2})(?:\s?[:.h時时点點시]\s?(?P<min>\d{2})(?![\d])[分분]?)?(?:\s?(?P<half>半))?"
    r"\s?(?P<mark>a\.?m\b\.?|p\.?m\b\.?|uhr\b|o'?clock\b|o’clock\b|h\b|heures?\b|hrs?\b|noon\b"
    r"|klo\b|時|时|点|點|시)?"
    r"(?:\s?(?P<after>\d{2})(?!\d))?",
    re.IGNORECASE,
)
_AFTERNOON = re.compile(r"(?:下午|晚上|午後|傍晚|夜|오후|中午)\s?$")
_NOON = re.compile(
    r"\b(?:noon|midday|mittags?|mezzogiorno|mediod[ií]a|midi|meio-dia|полдень|öğlen)\b"
    r"|中午|正午|정오",
    re.I,
)
_MIDNIGHT = re.compile(
    r"\b(?:midnight|mitternacht|minuit|medianoche|mezzanotte|meia-noite|полночь|gece yarısı)\b"
    r"|午夜|零点|자정",
    re.I,
)
#: Half and quarters: the minutes that they add, and whether the hour follows ("half past three")
#: or goes before ("tres y media").
_PARTS = tuple(
    (minutes, follows, re.compile(pattern, re.IGNORECASE))
    for minutes, follows, pattern in (
        (
            (30,),
            True,
            r"\bhalf (?:past )?(?!een\b|twee|drie|vier|vijf|zes|zeven|acht|negen|tien|elf)",
        ),
        (
            (-30,),
            True,
            r"\b(?:halb|halv|half(?= (?:een|twee|drie|vier|vijf|zes|zeven|acht|negen|tien"
            r"|elf|twaalf)\b)"
            r"|wpół do|половина)\b|\bпол(?=\w)",
        ),
        ((30,), False, r"\b(?:et demie?|y media|e mezz[ao]|e meia|buçuk)\b|半|반"),
        ((15,), True, r"\b(?:quarter past|viertel nach|kwart over|kvart över)\b"),
        (
            (-15,),
            True,
            r"\b(?:quarter (?:to|of|before)|viertel vor|kwart voor|kvart i|без четверти)\b",
        ),
        (
            (15,),
            False,
            r"\b(?:(?:et|y|e) (?:un |le |um )?(?:quart|cuarto|quarto)|çeyrek geç\w*)\b|一刻",
        ),
        (
            (-15,),
            False,
            r"\b(?:moins le quart|menos (?:un |um )?(?:cuarto|quarto)|meno un quarto"
            r"|çeyrek (?:var|kala))\b",
        ),
        ((-45, -15), True, r"\b(?:viertel(?! (?:vor|nach))|четверть)\b"),
        ((-15,), True, r"\bdreiviertel\b"),
    )
)
#: How far the hour may be from these words.
_NEAR = 14
#: A span of time that another time is worked out with.
_DURATION = re.compile(
    r"(?P<half>half an hour|halbe stunde|demi-?heure|media hora|mezz['’ ]?ora|meia hora"
    r"|half uur|pół godziny"
    r"|halvtimme|полчаса|пів ?години|yarım saat|نصف ساعة|आधा घंटा|आधे घंटे|半小时|半个小时"
    r"|半時間|반 ?시간)"
    r"|(?P<count>\d{1,3}|[^\W\d_]{1,14})[ -]?(?:(?P<minutes>min(?:ut\w*)?\b|минут\w*"
    r"|хвилин\w*|dakika\w*|دقائق|دقيقة|मिनट|分[钟鐘間]?|분)"
    r"|(?P<hours>hours?\b|stunden?\b|heures?\b|horas?\b|or[ae]\b|uur\b|uren\b|timm\w+"
    r"|godzin\w*|час\w*|годин\w*|saat\w*|ساعات|ساعة|घंटे|小时|時間|시간))",
    re.IGNORECASE,
)


class Time(msgspec.Struct, frozen=True):
    """A time of day in a text; ``minutes`` are those since midnight that it may mean."""

    written: str
    start: int
    end: int
    minutes: frozenset[int]


def find_times(text: str) -> Iterator[Time]:
    """The times of day that a text writes as such: with a colon, "pm", "Uhr", "h" or the like."""
    flat = ascii_digits(text)
    for match in _TIME.finditer(flat):
        mark = (match["mark"] or "").lower().replace(".", "")
        has_colon = match["min"] and re.search(r"[:h時时点點시]", match.group())
        if not mark and not has_colon:
            continue
        hour, minute = int(match["h"]), int(match["min"] or (30 if match["half"] else 0))
        end = match.end("half") if match["half"] else match.end()
        if match["after"]:
            if mark == "uhr" or mark.startswith("h"):
                minute = int(match["after"])
            else:
                end = match.start("after")
        if hour > 24 or minute > 59:
            continue
        if mark == "pm" or _AFTERNOON.search(flat[max(match.start() - 4, 0) : match.start()]):
            hour = hour % 12 + 12
        elif mark == "am":
            hour %= 12
        yield Time(
            flat[match.start() : end].strip(),
            match.start(),
            end,
            frozenset({(hour * 60 + minute) % 1440}),
        )


def said_minutes(text: str, numbers: Iterable[float]) -> frozenset[int]:
    """The minutes of the day that a text may mean, in 12 hours: "at 3" is 3:00 and 15:00."""
    found = {minute % 720 for time in find_times(text) for minute in time.minutes}
    hours = {int(number) for number in numbers if 0 < number <= 24 and number == int(number)}
    found |= {hour * 60 % 720 for hour in hours}
    for number in numbers:  # 15.30 and 3.45 as times
        hour, rest = divmod(round(number * 100), 100)
        if 0 < hour <= 24 and 0 < rest < 60 and abs(number * 100 - round(number * 100)) < 1e-6:
            found.add((hour * 60 + rest) % 720)
    for shifts, follows, pattern in _PARTS:
        for match in pattern.finditer(text):
            if follows:
                beside = text[match.end() : match.end() + _NEAR]
            else:
                beside = text[max(match.start() - _NEAR, 0) : match.start()]
            named = {int(one) for one in said_numbers((beside,)) if 0 < one <= 24} or hours
            found |= {(hour * 60 + shift) % 720 for hour in named for shift in shifts}
    if _NOON.search(text) or _MIDNIGHT.search(text):
        found.add(0)
    return frozenset(found)


def said_durations(text: str) -> frozenset[int]:
    """The spans of minutes and hours that a text names, in minutes."""
    found: set[int] = set()
    for match in _DURATION.finditer(ascii_digits(text)):
        if match["half"]:
            found.add(30)
            continue
        scale = 1 if match["minutes"] else 60
        found |= {int(one * scale) for one in said_numbers((match["count"],)) if one < 600}
    return frozenset(found)


# -- spans of days, weeks, months and years ------------------------------------------------------

#: "in three weeks", "3 weeks ago": unit by language, what goes before and what after.
_UNITS = {
    "d": "days? nights? tag(?:e|en)? jours? días? dias? giorn[oi] dag(?:en|ar)? dni dzień дн(?:я"
    "|ей|і) день gün"
    " أيام يوم दिन 天 日 일",
    "w": "weeks? fortnights? wochen? semaines? semanas? settiman[ae] weken? vecka veckor"
    " tydzie(?:ń) tygodni[ea]?"
    " недел(?:ю|и|ь) тиж(?:день|ні"
    "|нів) hafta أسابيع أسبوع हफ्ते हफ़्ते सप्ताह 周 週間 星期 个星期 주",
    "m": "months? monat(?:e|en)? mois mes(?:es)? mês mes[ei] maanden? maand månad(?:er)?"
    " miesiąc(?:e|y)? "
    " месяц(?:а|ев)? місяц(?:ь|і|ів) ay أشهر شهر महीने 个月 個月 か月 ヶ月 개월 달",
    "y": "years? jahr(?:e|en)? ans? années? años? anni anno anos? jaar år rok(?:u)? lata? lat"
    " год(?:а)? лет"
    " рок(?:и|ів|у) yıl سنوات سنة साल 年 年間 년",
}


_BEFORE = (
    r"in|within|for|since|over|in about|vor|seit|innerhalb von|dans|il y a|depuis|en|hace|dentro"
    r" de|desde"
    r" hace|tra|fra|da|daqui a|há|faz|em|over|sinds|om|för|za|od|через|назад|тому|بعد|قبل|منذ"
)


_AFTER = (
    r"from now|from today|ago|later|before|old|fa|atrás|geleden|temu|назад|тому назад|тому|sonra"
    r"|önce|sedan"
    r"|पहले|बाद|में|后|後|前|以后|以後|之前|之后|뒤|후|전"
)


_DIRECTION_BACK = re.compile(
    r"\b(?:ago|vor|il y a|hace|fa|há|faz|atrás|geleden|temu|назад|тому|önce|sedan|قبل|منذ|seit"
    r"|since|depuis|for|sinds|od|desde|da)\b|पहले|前|전|old",
    re.I,
)


COUNT_WORDS = {
    word: count
    for count, words in {
        1: "a an one ein eine einem einer un une una uno uma um een ett en jeden jedną одну один"
        " bir एक 一",
        2: "two couple zwei deux dos due dois duas twee två dwa dwie два две iki दो 两 二 couple",
        3: "तीन three few drei trois tres tre tres drie trzy три üç तीन 三",
        4: "चार four vier quatre cuatro quattro quatro fyra cztery четыре dört चार 四",
        5: "पाँच पांच five fünf cinq cinco cinque vijf fem pięć пять beş 五",
        6: "छह छः six sechs seis sei zes sex sześć шесть altı 六",
        7: "सात seven sieben sept siete sette sete zeven siedem семь 七",
        8: "eight acht huit ocho otto oito åtta osiem восемь sekiz",
        9: "nine neun neuf nueve nove negen nio dziewięć девять",
        10: "दस ten zehn dix diez dieci dez tien tio dziesięć десять on",
        14: "fortnight fourteen quatorze vierzehn catorce",
        15: "fifteen quinze quince",
    }.items()
    for word in words.split()
}


_SPAN = {
    unit: re.compile(
        rf"(?:(?<![^\W_])(?P<before>{_BEFORE})\s+)?(?<![^\W_])(?P<count>\d{{1,3}}|[^\W\d_]{{1,10}})"
        rf"(?:\s+(?:of\s+)?)?(?:{'|'.join(units.split())})(?![^\W_])(?:\s*(?P<after>{_AFTER}))?".replace(
            "ı", "i"
        )  # the text is folded
    )
    for unit, units in _UNITS.items()
}


_SPAN_HAN = re.compile(
    r"(?<![\d月])(?P<count>\d{1,3}|[一二两兩三四五六七八九十半])\s?"
    r"(?:(?P<unit>天|日|周|週間|星期|个星期|个月|個月|か月|ヶ月|年|일|주|개월|달|년)"
    r"\s?(?P<after>后|後|前|以前|以后|之后|之前|뒤|후|전)|(?P<span>天|周|週間|个星期|个月"
    r"|個月|か月|ヶ月|개월))"
)


_HAN_COUNT = {sign: value for value, sign in enumerate("一二三四五六七八九十", 1)} | {
    "两": 2,
    "兩": 2,
    "半": 0,
}


_UNIT_OF_HAN = {
    "天": "d",
    "日": "d",
    "일": "d",
    "周": "w",
    "週間": "w",
    "星期": "w",
    "个星期": "w",
    "주": "w",
    "个月": "m",
    "個月": "m",
    "か月": "m",
    "ヶ月": "m",
    "개월": "m",
    "달": "m",
    "年": "y",
    "년": "y",
}


def find_spans(text: str) -> Iterator[tuple[int, str, int]]:
    """The spans that a text names ("three weeks ago"): count, unit, and 1 or -1 if it says so."""
    flat = fold_in_place(ascii_digits(text)).replace("’", "'")
    for unit, pattern in _SPAN.items():
        for match in pattern.finditer(flat):
            number = _count(match["count"])
            if number is None:
                continue
            around = f"{match['before'] or ''} {match['after'] or ''}"
            yield number, unit, -1 if _DIRECTION_BACK.search(around) else 1 if around.strip() else 0
    for match in _SPAN_HAN.finditer(text):
        count = _HAN_COUNT.get(match["count"], _count(match["count"]) or 0)
        sign = 0 if not match["after"] else -1 if match["after"] in _HAN_BACK else 1
        yield count, _UNIT_OF_HAN[match["unit"] or match["span"]], sign
    for match in _NEIGHBOURS.finditer(flat):
        yield 1, "d", -1 if match["before"] else 1


#: The day before or after another one.
_NEIGHBOURS = re.compile(
    r"(?P<before>\b(?:(?:day|night|evening) before(?! yesterday)|eve of|vorabend|(?:tag"
    r"|abend) (?:davor|zuvor)|veille"
    r"|vispera|(?:dia|noche|noite|giorno|sera) (?:antes|anterior|prima)|vigilia"
    r"|(?:dag|avond|kvall\w*) (?:ervoor|fore|innan)|dzien wczesniej|(?:накануне|днем ранее)"
    r"|onceki (?:gun|gece|aksam))|前日|前の[日晩夜]|前一[天晚]|전날)"
    r"|\b(?:(?:day|morning) after(?! tomorrow)|following day|tags darauf|(?:tag"
    r"|morgen) danach|lendemain"
    r"|(?:dia|mattina|giorno) (?:siguiente|seguinte|dopo|successiv[oa])|dag erna|dagen efter"
    r"|nastepnego dnia|на следующий день|ertesi gun)\b|翌[日朝]|次の日|第二天|다음 날"
)


_HAN_BACK = ("前", "之前", "以前", "전")


def _count(written: str) -> int | None:
    return int(written) if written.isdigit() else COUNT_WORDS.get(written)


_SEASONS = re.compile(
    r"\b(?:spring|summer|autumn|winter|frühling|frühjahr|sommer|herbst|printemps|été|automne|hiver"
    r"|primavera|verano|otoño|invierno|estate|autunno|inverno|verão|outono|lente|zomer"
    r"|herfst|wiosn\w+"
    r"|lat[oae]|jesie\w+|zim\w+|vår|höst\w*|весн\w+|лет[оа]м?|осен\w+|зим\w+|yaz|kış"
    r"|sonbahar|ilkbahar)\b"
    r"|[春夏秋冬][天季]?|봄|여름|가을|겨울|الربيع|الصيف|الخريف|الشتاء|गर्मी|सर्दी",
    re.IGNORECASE,
)


def has_season(text: str) -> bool:
    """Whether a text names a season."""
    return bool(_SEASONS.search(text))
