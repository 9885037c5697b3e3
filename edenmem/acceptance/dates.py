"""Dates and times: those that a text names, and those that it means ("tomorrow", "next Friday").

A relative expression and the day on which it was said yield days. The tables hold the dozen
languages that conversations here are mostly in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from functools import cache

import msgspec

from edenmem.acceptance.times import COUNT_WORDS, find_spans
from edenmem.acceptance.words import (
    ascii_digits,
    base_of,
    fold,
    fold_in_place,
    word_set,
    words_of,
)

#: Months by language, folded, as the beginnings of their forms.
_MONTHS = {
    "en": "january|february|march|april|may|june|july|august|september|october|november|december",
    "short": "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec",
    "de": "januar jänner|februar feber|märz|april|mai|juni|juli|august|september|oktober|november"
    "|dezember",
    "fr": "janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre",
    "es": "enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre setiembre|octubre"
    "|noviembre|diciembre",
    "it": "gennaio|febbraio|marzo|aprile|maggio|giugno|luglio|agosto|settembre|ottobre|novembre"
    "|dicembre",
    "pt": "janeiro|fevereiro|março|abril|maio|junho|julho|agosto|setembro|outubro|novembro"
    "|dezembro",
    "nl": "januari|februari|maart|april|mei|juni|juli|augustus|september|oktober|november|december",
    "sv": "januari|februari|mars|april|maj|juni|juli|augusti|september|oktober|november|december",
    "pl": "stycznia styczeń styczniu|lutego luty lutym|marca marzec marcu|kwietnia kwiecień"
    " kwietniu|maja maj maju|czerwca czerwiec czerwcu|lipca lipiec lipcu|sierpnia sierpień"
    " sierpniu|września wrzesień wrześniu|października październik październiku|listopada"
    " listopad listopadzie|grudnia grudzień grudniu",
    "ru": "января январь январе|февраля февраль феврале|марта март марте|апреля апрель апреле|мая"
    " май мае|июня июнь июне|июля июль июле|августа август августе|сентября сентябрь сентябре"
    "|октября октябрь октябре|ноября ноябрь ноябре|декабря декабрь декабре",
    "uk": "січня січень січні|лютого лютий|березня березень березні|квітня квітень квітні|травня"
    " травень травні|червня червень червні|липня липень липні|серпня серпень серпні|вересня"
    " вересень вересні|жовтня жовтень жовтні|листопада листопад листопаді|грудня грудень грудні",
    "tr": "ocak ocakta|şubat şubatta|mart martta|nisan nisanda|mayıs mayısta|haziran haziranda"
    "|temmuz temmuzda|ağustos ağustosta|eylül eylülde|ekim ekimde|kasım kasımda|aralık aralıkta",
    "ar": "يناير|فبراير|مارس|أبريل ابريل|مايو|يونيو|يوليو|أغسطس|سبتمبر|أكتوبر|نوفمبر|ديسمبر",
    "hi": "जनवरी|फरवरी फ़रवरी|मार्च|अप्रैल|मई|जून|जुलाई|अगस्त|सितंबर सितम्बर|अक्टूबर|नवंबर नवम्बर|दिसंबर दिसम्बर",
}
#: Weekdays by language from Monday, folded.
_WEEKDAYS = {
    "en": "monday mondays|tuesday tuesdays|wednesday wednesdays|thursday thursdays|friday fridays"
    "|saturday saturdays|sunday sundays",
    "short": "mon|tue tues|wed|thu thurs|fri|sat|sun",
    "de": "montag montags|dienstag dienstags|mittwoch mittwochs|donnerstag donnerstags|freitag"
    " freitags|samstag sonnabend samstags|sonntag sonntags",
    "fr": "lundi lundis|mardi mardis|mercredi|jeudi jeudis|vendredi vendredis|samedi samedis"
    "|dimanche",
    "es": "lunes|martes|miércoles|jueves|viernes|sábado sábados|domingo domingos",
    "it": "lunedì|martedì|mercoledì|giovedì|venerdì|sabato|domenica",
    "pt": "segunda|terça|quarta|quinta|sexta|sábado|domingo",
    "nl": "maandag|dinsdag|woensdag|donderdag|vrijdag|zaterdag|zondag",
    "sv": "måndag måndagen|tisdag tisdagen|onsdag onsdagen|torsdag torsdagen|fredag fredagen"
    "|lördag lördagen|söndag söndagen",
    "pl": "poniedziałek|wtorek|środa środę|czwartek|piątek|sobota sobotę|niedziela niedzielę",
    "ru": "понедельник понедельника понедельникам|вторник вторника вторникам|среда среду средам"
    "|четверг четверга четвергам|пятница пятницу пятницам|суббота субботу субботам|воскресенье"
    " воскресеньям",
    "uk": "понеділок|вівторок|середа середу|четвер|п'ятниця|субота суботу|неділя неділю",
    "tr": "pazartesi|salı|çarşamba|perşembe|cuma|cumartesi|pazar",
    "ar": "الاثنين الإثنين|الثلاثاء|الأربعاء|الخميس|الجمعة|السبت|الأحد",
    "th": "วันจันทร์|วันอังคาร|วันพุธ|วันพฤหัสบดี|วันศุกร์|วันเสาร์|วันอาทิตย์",
    "hi": "सोमवार|मंगलवार|बुधवार|गुरुवार|शुक्रवार|शनिवार|रविवार",
}
_WEEKDAYS_HAN = re.compile(
    "(?:星期|周|週|礼拜)([一二三四五六日天])|([月火水木金土日])曜|([월화수목금토일])요일"
)
_HAN_DAYS = {
    sign: day
    for day, signs in enumerate(
        ("一月월", "二火화", "三水수", "四木목", "五金금", "六土토", "日天일")
    )
    for sign in signs
}

#: Relative expressions: what is added to the day they are said on, in days ("d"), weeks, months
#: or years; "p" is a point in the same day. A language's own words count in its own texts only.
_RELATIVE = {
    "en": "0d today|0d tonight|0d this morning|0d this afternoon|0d this evening|1d tomorrow|1d"
    " tmrw"
    "|-1d yesterday|-1d last night|2d day after tomorrow|2d overmorrow|-2d day before yesterday"
    "|1w next week|-1w last week|0w this week|0w this weekend|1w next weekend|-1w last weekend|0w"
    " the weekend|0w at the weekend|1m next month|-1m last month|0m this month|1y next year|-1y"
    " last"
    " year|0y this year|2w week after next|-2w week before last|2w in a fortnight|2w fortnight",
    "de": "0d heute|0d heute abend|0d heute morgen|1d morgen|-1d gestern|2d übermorgen|-2d"
    " vorgestern|1w nächste woche|1w nächster woche|1w kommende woche|1w kommender woche|-1w letzte"
    " woche|-1w letzter woche|-1w vergangene woche|0w diese woche|0w dieser woche|0w dieses"
    " wochenende|0w am wochenende|1w nächstes wochenende|-1w letztes wochenende|1m nächsten monat"
    "|1m nächster monat|1m kommenden monat|-1m letzten monat|-1m vergangenen monat|0m diesen monat"
    "|1y nächstes jahr|1y kommendes jahr|-1y letztes jahr|-1y vergangenes jahr|0y dieses jahr",
    "fr": "0d aujourd'hui|0d ce soir|0d ce matin|1d demain|-1d hier|2d après-demain|2d après demain"
    "|-2d avant-hier|1w la semaine prochaine|-1w la semaine dernière|-1w la semaine passée|0w cette"
    " semaine|0w ce week-end|1w le week-end prochain|-1w le week-end dernier|1m le mois prochain"
    "|-1m"
    " le mois dernier|0m ce mois-ci|1y l'année prochaine|1y l'an prochain|-1y l'année dernière|-1y"
    " l'an dernier|0y cette année",
    "es": "0d hoy|0d esta noche|0d esta tarde|0d esta mañana|1d mañana|-1d ayer|-1d anoche|2d"
    " pasado"
    " mañana|-2d anteayer|-2d antier|1w la próxima semana|1w la semana que viene|1w semana próxima"
    "|-1w la semana pasada|0w esta semana|0w este fin de semana|1w próximo fin de semana|-1w fin de"
    " semana pasado|1m el próximo mes|1m el mes que viene|-1m el mes pasado|0m este mes|1y el"
    " próximo año|1y el año que viene|-1y el año pasado|0y este año",
    "it": "0d oggi|0d stasera|0d stamattina|1d domani|-1d ieri|2d dopodomani|-2d l'altro ieri|-2d"
    " altroieri|1w la prossima settimana|1w la settimana prossima|1w settimana prossima|-1w la"
    " settimana scorsa|-1w la scorsa settimana|0w questa settimana|0w questo fine settimana|1m il"
    " mese prossimo|1m il prossimo mese|-1m il mese scorso|-1m lo scorso mese|0m questo mese|1y"
    " l'anno prossimo|1y il prossimo anno|-1y l'anno scorso|-1y lo scorso anno|0y quest'anno",
    "pt": "0d hoje|0d esta noite|1d amanhã|-1d ontem|2d depois de amanhã|-2d anteontem|1w próxima"
    " semana|1w semana que vem|-1w semana passada|0w esta semana|0w este fim de semana|0w neste fim"
    " de semana|1m próximo mês|1m mês que vem|-1m mês passado|0m este mês|1y próximo ano|1y ano que"
    " vem|-1y ano passado|0y este ano",
    "nl": "0d vandaag|0d vanavond|0d vanmorgen|0d vanmiddag|1d morgen|-1d gisteren|2d overmorgen"
    "|-2d eergisteren|1w volgende week|-1w vorige week|-1w afgelopen week|0w deze week|0w dit"
    " weekend|1w volgend weekend|-1w vorig weekend|1m volgende maand|-1m vorige maand|0m deze maand"
    "|1y volgend jaar|-1y vorig jaar|0y dit jaar",
    "pl": "0d dzisiaj|0d dziś|1d jutro|1d jutra|-1d wczoraj|2d pojutrze|-2d przedwczoraj|1w w"
    " przyszłym tygodniu|1w przyszły tydzień|-1w w zeszłym tygodniu|0w w tym tygodniu|0w w ten"
    " weekend|1m w przyszłym miesiącu|-1m w zeszłym miesiącu|1y w przyszłym roku|-1y w zeszłym"
    " roku|0y w tym roku",
    "sv": "0d idag|0d i dag|0d ikväll|0d i kväll|1d imorgon|1d i morgon|-1d igår|-1d i går|2d i"
    " övermorgon|-2d i förrgår|1w nästa vecka|-1w förra veckan|0w denna vecka|0w den här veckan"
    "|0w i"
    " helgen|1m nästa månad|-1m förra månaden|1y nästa år|-1y förra året|0y i år",
    "ru": "0d сегодня|1d завтра|-1d вчера|2d послезавтра|-2d позавчера|1w на следующей неделе|1w"
    " следующая неделя|1w на той неделе|-1w на прошлой неделе|0w на этой неделе|0w в эти"
    " выходные|0w"
    " в выходные|1w в следующие выходные|1m в следующем месяце|-1m в прошлом месяце|0m в этом"
    " месяце"
    "|1y в следующем году|-1y в прошлом году|0y в этом году",
    "uk": "0d сьогодні|1d завтра|-1d вчора|-1d учора|2d післязавтра|-2d позавчора|1w наступного"
    " тижня|-1w минулого тижня|0w цього тижня|1m наступного місяця|-1m минулого місяця|1y"
    " наступного"
    " року|-1y минулого року|0y цього року",
    "tr": "0d bugün|0d bu akşam|0d bu gece|0d bu sabah|1d yarın|-1d dün|2d öbür gün|2d yarından"
    " sonra"
    "|-2d evvelsi gün|1w gelecek hafta|1w haftaya|1w önümüzdeki hafta|-1w geçen hafta|0w bu"
    " hafta|0w"
    " bu hafta sonu|1m gelecek ay|1m önümüzdeki ay|-1m geçen ay|0m bu ay|1y gelecek yıl|1y"
    " seneye|-1y"
    " geçen yıl|0y bu yıl",
    "ar": "0d اليوم|0d الليلة|1d غدا|1d غداً|1d غدًا|-1d أمس|-1d البارحة|2d بعد غد|-2d أول"
    " أمس|1w الأسبوع"
    " القادم|1w الأسبوع المقبل|-1w الأسبوع الماضي|0w هذا الأسبوع|1m الشهر القادم|1m الشهر المقبل"
    "|-1m"
    " الشهر الماضي|0m هذا الشهر|1y العام القادم|1y السنة القادمة|1y العام المقبل|-1y العام"
    " الماضي|-1y السنة"
    " الماضية|0y هذا العام",
    "hi": "0d आज|1d कल|-1d कल|2d परसों|-2d परसों|1w अगले हफ्ते|1w अगले हफ़्ते|1w अगले सप्ताह|-1w"
    " पिछले"
    " हफ्ते|-1w पिछले हफ़्ते|-1w पिछले सप्ताह|0w इस हफ्ते|0w इस सप्ताह|1m अगले महीने|-1m पिछले"
    " महीने|0m"
    " इस महीने|1y अगले साल|-1y पिछले साल|0y इस साल",
    "zh": "0d 今天|0d 今晚|0d 今早|0d 今日|1d 明天|1d 明晚|1d 明早|1d 明日|-1d 昨天|-1d 昨晚"
    "|-1d 昨日|3d 大后天|-3d 大前天|2d 后天"
    "|2d 後天|-2d 前天|1w 下周|1w 下週|1w 下星期|1w 下个星期|1w 下礼拜|-1w 上周|-1w 上週"
    "|-1w 上星期|-1w 上个星期"
    "|0w 这周|0w 本周|0w 這週|0w 这个星期|0w 这个周末|0w 本周末|0w 这周末|1m 下个月"
    "|1m 下個月|1m 下月|-1m 上个月"
    "|-1m 上個月|0m 这个月|0m 本月|1y 明年|-1y 去年|0y 今年|2y 后年|-2y 前年",
    "ja": "0d 今日|0d 今晩|0d 今夜|0d 今朝|1d 明日|1d あした|1d 明晩|-1d 昨日|-1d きのう"
    "|-1d 昨夜|2d 明後日|2d"
    " あさって|-2d 一昨日|-2d おととい|1w 来週|-1w 先週|0w 今週|0w 今週末|1w 来週末"
    "|2w 再来週|1m 来月|-1m 先月|0m"
    " 今月|2m 再来月|1y 来年|-1y 去年|-1y 昨年|0y 今年|2y 再来年",
    "ko": "0d 오늘|0d 오늘밤|1d 내일|-1d 어제|2d 모레|-2d 그저께|1w 다음 주|1w 다음주"
    "|-1w 지난주|-1w 지난 주|0w"
    " 이번 주|0w 이번주|0w 이번 주말|1m 다음 달|1m 다음달|-1m 지난달|-1m 지난 달"
    "|0m 이번 달|1y 내년|-1y 작년|0y 올해",
    "th": "0d วันนี้|0d คืนนี้|1d พรุ่งนี้|-1d เมื่อวาน|2d มะรืนนี้|1w สัปดาห์หน้า|1w"
    " อาทิตย์หน้า|-1w"
    " สัปดาห์ที่แล้ว|-1w อาทิตย์ที่แล้ว|0w สัปดาห์นี้|1m เดือนหน้า|-1m เดือนที่แล้ว|1y ปีหน้า"
    "|-1y ปีที่แล้ว",
}
#: Expressions that are no relative date in what is kept: they say how things are, not when.
_LASTING = frozenset(
    {"the weekend", "at the weekend", "am wochenende", "в выходные", "i helgen", "fortnight"}
)


#: Feasts with a fixed day: (month, day), days that it lasts.
_FEASTS = (
    (r"christmas eve|heiligabend|heiligen abend|nochebuena|вигілія", 12, 24, 1),
    (r"christmas|xmas|weihnacht\w*|noël|navidad|natale|natal|kerst\w*|jul\b", 12, 24, 3),
    (r"boxing day", 12, 26, 1),
    (r"new year'?s eve|silvester|nochevieja|réveillon|capodanno|oudjaar", 12, 31, 2),
    (
        r"new year'?s?(?: day)?|neujahr|nouvel an|año nuevo|ano novo|новый год|новым годом"
        r"|元旦|お正月",
        1,
        1,
        1,
    ),
    (r"halloween", 10, 31, 1),
    (r"valentine'?s?(?: day)?|valentinstag|saint-valentin|san valentín", 2, 14, 1),
)
_FEAST = tuple(
    (re.compile(rf"\b(?:{words})", re.IGNORECASE), month, day, length)
    for words, month, day, length in _FEASTS
)

#: Feasts whose day moves: it is not worked out here.
_MOVABLE = re.compile(
    r"\b(?:easter|good friday|oster|karfreitag|paques|pascua|semana santa|pasqua|pascoa|pasen|pask"
    r"|wielkanoc|пасх|paskalya|advent|pentec|pfingst|whitsun|pinkster|ramadan|ramazan|bayram|eid\b"
    r"|hanukkah|passover|diwali|holi\b|thanksgiving|carnival|carnaval|karneval|fasching|midsommar"
    r"|black friday|رمضان|عيد|दिवाली|होली)|春[节節]|新年|中秋|端午|清明|[国國][庆慶]|お盆|旧正月"
    r"|설날|추석"
)


def has_movable_feast(text: str) -> bool:
    """Whether a text names a feast whose day is another one each year."""
    return bool(_MOVABLE.search(fold_in_place(text)))


_ISO = re.compile(r"(?<!\d)(?P<y>\d{4})[-/.](?P<m>\d{1,2})(?:[-/.](?P<d>\d{1,2}))?(?!\d)")
_FIGURES = re.compile(
    r"(?<![\d.])(?P<a>\d{1,2})(?P<mark>[./-])\s?(?P<b>\d{1,2})(?:(?P=mark)\s?(?P<y>\d{4}"
    r"|\d{2})(?!\d)|\.(?!\d))?(?![\d])"
)
_HAN_DATE = re.compile(
    r"(?:(?P<y>\d{4})\s?[年년]\s?)?(?P<m>\d{1,2})\s?[月월](?:\s?(?P<d>\d{1,2})\s?[日号號일])?"
)
_DAY = r"(?P<{0}>\d{{1,2}})(?:st|nd|rd|th|\.|º|ª|er|ro|-?го|-?е|-?е)?"
_YEAR = r"(?:,?\s?(?:de |del |do |года |of |')?(?P<{0}>(?:19|20|21)\d\d)(?!\d))?"


#: Days of the week in Portuguese that are ordinals too, and with what they are days.
_ORDINALS = word_set("segunda terca quarta quinta sexta")
_FEIRA = re.compile(
    r"\b(?:n?as?|da|ate|est[ae]|nesta|toda|proxima) (segunda|terca|quarta|quinta|sexta)\b"
)


#: Year, month and day; None for what is left open.
Reading = tuple[int | None, int | None, int | None]


class Said(msgspec.Struct, frozen=True):
    """A date as a text gives it: what it leaves out is None. ``others`` are other readings."""

    written: str
    start: int
    end: int
    readings: tuple[Reading, ...]  # year, month, day


class Meant(msgspec.Struct, frozen=True):
    """The days from ``first`` to ``last`` that an expression means, as exact as ``unit``."""

    first: date
    last: date
    unit: str


@cache
def _months() -> dict[str, int]:
    return {
        written: month
        for names in _MONTHS.values()
        for month, forms in enumerate(names.split("|"), 1)
        for name in forms.split()
        for written in (fold(name), fold_in_place(name))  # with and without vowel signs
    }


@cache
def _weekdays() -> dict[str, int]:
    return {
        base_of(name): day
        for language, names in _WEEKDAYS.items()
        for day, forms in enumerate(names.split("|"))
        for name in forms.split()
    }


#: Where a word ends: a vowel sign of Devanagari is no letter for ``\\b``, and yet inside words.
_WORD_END = r"(?![\w\u0900-\u0963])"


@cache
def _with_month() -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = "|".join(sorted(_months(), key=len, reverse=True))
    month = rf"(?P<month>{names})"
    before = re.compile(
        rf"(?<![\d.:]){_DAY.format('d')}(?:\s?[-–/]\s?\d{{1,2}}\.?)?\s?(?:of |de |de |д[еи]"
        rf" )?{month}{_WORD_END}\.?{_YEAR.format('y')}"
    )
    after = re.compile(
        rf"\b{month}{_WORD_END}\.?(?:(?:\s(?:the )?|\s?,\s?){_DAY.format('d')}(?![\d:]|\s?(?:am|pm"
        rf"|uhr)\b))?{_YEAR.format('y')}"
    )
    return before, after


@cache
def calendar_words() -> frozenset[str]:
    """The names of months and weekdays, folded."""
    return (frozenset(_months()) | frozenset(_weekdays())) - _ORDINALS


def find_dates(text: str, *, is_lenient: bool = False) -> list[Said]:
    """The dates that a text names, without overlaps.

    A month alone counts if its name is no ordinary word ("may"), or if ``is_lenient``.
    """
    flat = fold_in_place(ascii_digits(text))
    found: list[Said] = []
    taken = bytearray(len(flat))

    def add(match: re.Match[str], *readings: Reading) -> None:
        start, end = match.span()
        good = tuple(reading for reading in readings if _is_date(*reading))
        if good and not any(taken[start:end]):
            taken[start:end] = b"\x01" * (end - start)
            found.append(
                Said(text[start:end] if len(flat) == len(text) else match.group(), start, end, good)
            )

    for match in _ISO.finditer(flat):
        add(match, (int(match["y"]), int(match["m"]), _int(match["d"])))
    for match in _HAN_DATE.finditer(flat):
        add(match, (_int(match["y"]), int(match["m"]), _int(match["d"])))
    before, after = _with_month()
    months = _months()
    for match in before.finditer(flat):
        add(match, (_int(match["y"]), months[match["month"]], int(match["d"])))
    for match in after.finditer(flat):
        day, year = _int(match["d"]), _int(match["y"])
        if day is None and year is None and match["month"] in _DOUBTFUL and not is_lenient:
            continue
        add(match, (year, months[match["month"]], day))
    for match in _FIGURES.finditer(flat):
        a, b, year = int(match["a"]), int(match["b"]), _int(match["y"])
        if year is None and match["mark"] != "/" and not match.group().endswith("."):
            continue  # 3.5 and 3-4 are numbers
        if year is None and match["mark"] == "." and not _BEFORE_DAY.search(flat[: match.start()]):
            continue  # the version 5.2.
        year = year + 2000 if year is not None and year < 100 else year
        add(match, (year, b, a), (year, a, b))
    return found


_BEFORE_DAY = re.compile(
    r"(?:\b(?:am|den|vom|zum|bis|ab|seit|dem|der|und|im|dne|od|do|na|w dniu|il|del|le|pa)"
    r"|[,(–-]|tag)\s*\Z"
)
#: Short forms and months that are ordinary words too: dates only with a day or a year.
_DOUBTFUL = word_set(
    "jan feb mar apr may jun jul aug sep oct nov dec march mars mai maj mei maio mayo maya"
    " august ekim ocak"
    " marca mart марта мая май мае luty lutego listopad листопад мар marec lipca april"
) - {"april", "август"}


def _int(figures: str | None) -> int | None:
    return None if figures is None else int(figures)


def _is_date(year: int | None, month: int | None, day: int | None) -> bool:
    if year is not None and not 1 <= year <= 9998:
        return False
    if month is not None and not 1 <= month <= 12:
        return False
    if day is None:
        return True
    try:
        date(year or 2024, month or 1, day)
    except ValueError:
        return False
    return True


_HAN_MONTH = re.compile("(?<![一二三四五六七八九十])(十[一二]?|[一二三四五六七八九])月")
_HAN_MONTHS = {
    sign: month for month, sign in enumerate((*"一二三四五六七八九十", "十一", "十二"), 1)
}


def said_months(text: str) -> frozenset[int]:
    """The months that a text names, in any of the languages known here."""
    months = _months()
    named = {months[word.folded] for word in words_of(text) if word.folded in months}
    return frozenset(named | {_HAN_MONTHS[match[1]] for match in _HAN_MONTH.finditer(text)})


# -- what relative expressions mean --------------------------------------------------------------


@cache
def _relative_pattern(language: str) -> re.Pattern[str]:
    phrases = sorted(_relative_table(language), key=len, reverse=True)
    inside = "|".join(re.escape(phrase) for phrase in phrases)
    if language in _UNSPACED:
        return re.compile(inside)
    return re.compile(rf"(?<![^\W_])(?:{inside})(?![^\W_]|[\u0900-\u0903\u093a-\u094f])")


@cache
def _relative_table(language: str) -> dict[str, list[tuple[int, str]]]:
    table: dict[str, list[tuple[int, str]]] = {}
    for entry in _RELATIVE.get(language, "").split("|"):
        offset, _, phrase = entry.partition(" ")
        table.setdefault(fold_in_place(phrase), []).append((int(offset[:-1]), offset[-1]))
    return table


_UNSPACED = ("zh", "ja", "ko", "th")
_RUN = re.compile(r"[^\W_]+")


@cache
def _relative_heads(language: str) -> frozenset[str]:
    """The first words of a language's relative expressions."""
    firsts = (_RUN.search(phrase) for phrase in _relative_table(language))
    return frozenset(first.group() for first in firsts if first)


def _relative_phrases(flat: str) -> Iterator[tuple[str, re.Match[str]]]:
    """The relative expressions of a folded text with their languages, language by language."""
    heads = set(_RUN.findall(flat))
    is_ascii = flat.isascii()
    for language in _RELATIVE:
        if (
            not is_ascii
            if language in _UNSPACED
            else not heads.isdisjoint(_relative_heads(language))
        ):
            for match in _relative_pattern(language).finditer(flat):
                yield language, match


def meant_days(text: str, said_at: datetime) -> list[Meant]:
    """The days that a text's relative expressions mean, said on a day, in any language."""
    day = said_at.date()
    flat = fold_in_place(ascii_digits(text)).replace("’", "'")
    weekdays = said_weekdays(text)
    found: list[Meant] = []
    weeks: list[date] = []  # the Mondays of the weeks that are named
    is_bare = not _week_on().search(flat)
    for language, match in _relative_phrases(flat):
        for count, unit in _relative_table(language)[match.group()]:
            meant = _shift(day, count, unit)
            if unit == "w" and weekdays:  # "Saturday of next week"
                weeks.append(meant.first)
                is_bare = False
            else:
                found.append(meant)
    for count, unit, sign in find_spans(text):
        signs = (sign,) if sign else (1, -1)
        found += (_shift(day, each * count, unit, about=True) for each in signs)
        if unit == "w" or (unit == "d" and count in _WEEKS_OF_DAYS):  # "Thursday in two weeks"
            count = _WEEKS_OF_DAYS.get(count, count) if unit == "d" else count
            weeks += (_add(day, each * 7 * count - day.weekday()) for each in signs)
    for weekday in weekdays:
        ahead = (weekday - day.weekday()) % 7
        found += (_one(monday, weekday) for monday in weeks)
        steps = {0, -7} if is_bare else set[int]()
        if ahead == 0 or _NEXT.search(flat):
            steps |= {7}
        if _IN_A_WEEK.search(flat):
            steps |= {7, 14}
        if _LAST.search(flat):
            steps |= {-7, -14}
        found += (_one(day, ahead + step) for step in steps)
    for pattern, month, first, length in _FEAST:
        if pattern.search(text):
            for year in (day.year - 1, day.year, day.year + 1):
                start = date(year, month, first)
                found.append(Meant(start, start + timedelta(days=length - 1), "d"))
    if _MONTH_END.search(flat):
        _, last = _month_of(day)
        _, last_before = _month_of(_add(day.replace(day=1), -1))
        found += (Meant(last, last, "d"), Meant(last_before, last_before, "d"))
        found.append(Meant(*_month_of(_add(last, 1)), "m"))
        found.append(Meant(_month_of(_add(last, 1))[1], _month_of(_add(last, 1))[1], "d"))
    return found


@cache
def _week_on() -> re.Pattern[str]:
    """A weekday that is moved by a week: "Thursday week", "samedi en huit"."""
    return re.compile(
        rf"\b(?:{_weekday_names()}) (?:week\b|fortnight|en (?:huit|quinze)|a otto|in acht tagen"
        rf"|in einer woche)|\bweek (?:on|from) (?:{_weekday_names()})"
    )


def names_week(text: str) -> bool:
    """Whether a text names a week ("next week") or moves a weekday by one."""
    flat = fold_in_place(ascii_digits(text))
    return bool(_week_on().search(flat)) or any(
        unit == "w"
        for language, match in _relative_phrases(flat)
        for _, unit in _relative_table(language)[match.group()]
    )


def said_weekdays(text: str) -> frozenset[int]:
    """The days of the week that a text names, from 0 for Monday."""
    flat = fold_in_place(text)
    names = _weekdays()
    found = {
        names[word.folded]
        for word in words_of(flat)
        if word.folded in names and word.folded not in _ORDINALS
    }
    found |= {names[match[1]] for match in _FEIRA.finditer(flat)}
    for match in _WEEKDAYS_HAN.finditer(text):
        found.add(_HAN_DAYS[next(filter(None, match.groups()))])
    return frozenset(found)


_SHORT_DAYS = frozenset(_WEEKDAYS["short"].replace("|", " ").split())
#: Figures that may be a day of the month: no part of a number, no time, no sum, nothing counted.
_LONE_DAY = re.compile(
    r"(?<![\d.,:/£$€¥#+-])(?<!\d\s)([12]?\d|3[01])"
    r"(?![\d%€$£¥:]|[.,]\d|\s?(?:h|uhr|am|pm|eur\w*|kg|km|m|min\w*|%|€|£)\b)"
)


#: What is said before or after a day of the month alone: "the 8th", "dia 3", "jusqu'au 8".
_BEFORE_ALONE = re.compile(
    r"\b(?:the|le|au|du|el|al|del|il|dia|am|den|zum|bis|vom|de|op|o|do|до|с|к)\s*\Z"
)
_AFTER_ALONE = re.compile(
    r"(?:st|nd|rd|th|er|e|º|-?го|-?му|-?е|日|号|號|일)(?![^\W\d_])|\.(?=\s|\Z)"
)


def said_days_of_month(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """The days of a month that figures of a text may be; and those that they are said to be."""
    flat = fold_in_place(ascii_digits(text))
    found, marked = set[int](), set[int]()
    for match in _LONE_DAY.finditer(flat):
        found.add(day := int(match[1]))
        before = flat[max(match.start() - 12, 0) : match.start()]
        if _BEFORE_ALONE.search(before) or _AFTER_ALONE.match(flat, match.end()):
            marked.add(day)
    return frozenset(found), frozenset(marked)


#: What makes a weekday a habit: "every", "never", the plural, an article in Romance languages.
_HABIT = re.compile(
    r"\b(?:every|each|always|never|usually|often|any|jede\w*|immer|nie|niemals|meist\w*|oft"
    r"|chaque|tous"
    r"|toutes|toujours|jamais|cada|todos|todas|siempre|nunca|ogni|tutt[ei]|sempre|mai|toda"
    r"|todo|elke|iedere"
    r"|altijd|nooit|kazd\w+|co|zawsze|nigdy|varje|alltid|aldrig|кажд\w+|всегда|никогда|по"
    r"|обычно|кожн\w+"
    r"|завжди|ніколи|her|hep|asla)\b|[每毎]|从来|总|一般|いつも|毎|決して|마다"
    r"|항상|늘|매주|كل|دائم|أبد|हर|हमेशा|कभी"
)


def find_lone_weekday(text: str) -> str | None:
    """The weekday that a text gives for a single day without its date; None if there is none."""
    flat = fold_in_place(ascii_digits(text))
    if _HABIT.search(flat) or _HABIT.search(text) or len(said_weekdays(text)) != 1:
        return None
    if match := _WEEKDAYS_HAN.search(text):
        return match.group()
    names = _weekdays()
    for word in words_of(flat):
        if word.folded in names and word.folded not in _ORDINALS and word.folded not in _SHORT_DAYS:
            is_habit = (
                re.search(r"(?:days|tags|ochs|abends|en)$", word.folded)
                and word.folded != "sonnabend"
            )
            follows = re.match(r" (?:the |den |der )?\d{1,2}(?:st|nd|rd|th|\.)", flat[word.end :])
            article = re.search(r"\b(?:les?|los|il|la|las|nas|as|aos|di|de) $", flat[: word.start])
            return None if is_habit or follows or article else text[word.start : word.end]
    return None


#: "Samstag in acht Tagen", "jeudi en quinze": the days that are said for weeks.
_WEEKS_OF_DAYS = {7: 1, 8: 1, 14: 2, 15: 2}
#: Words that move a weekday by a week: "next", "last", "a week on".
_NEXT = re.compile(
    r"\b(?:next|coming|following|after|nachst\w+|kommend\w+|folgend\w+|ubernachst\w+"
    r"|prochain\w*|suivant\w*"
    r"|proxim\w+|siguiente|seguinte|que viene|que vem|prossim\w+|successiv\w+|volgend\w+|komend\w+"
    r"|nasta|kommande|przyszl\w+|nastepn\w+|следующ\w+|через|наступн\w+|gelecek|onumuzdeki"
    r"|haftaya)\b"
    r"|القادم|المقبل|अगले|अगली|[下来次翌]|다음"
)
_LAST = re.compile(
    r"\b(?:last|before|previous|letzt\w+|vorig\w+|vergangen\w+|dernier\w*|passe|pasad\w+|passad\w+"
    r"|scors\w+|afgelopen|forra|zeszl\w+|ubiegl\w+|прошл\w+|минул\w+|gecen)\b|الماضي|पिछल"
    r"|[上先]|지난"
)
_IN_A_WEEK = re.compile(
    r"\b(?:weeks?|fortnight|woche\w*|huit|quinze|semana\w*|ocho|quince|settiman\w+|otto|week|vecka"
    r"|tydzien|tygodni\w*|недел\w+|тижд\w+|hafta\w*)\b|[周週]后|週間後|주 ?(?:뒤|후)|أسبوع"
    r"|हफ्त|सप्ताह"
)


_MONTH_END = re.compile(
    r"\b(?:end of (?:the |this |next )?month|month'?s end|monatsende|ende (?:des |dieses "
    r"|nachsten )?monats|fin du mois|fin de mois|"
    r"fin de(?:l)? mes|fine (?:del )?mese|fim do mes|einde van de maand|eind van de maand|koniec"
    r" miesiaca|конц[аеу] месяца|ay sonu)|月末|月底|말일|월말"
)


def _month_of(day: date) -> tuple[date, date]:
    first = day.replace(day=1)
    return first, _add(_add(first, 31).replace(day=1), -1)


def _one(day: date, ahead: int) -> Meant:
    there = _add(day, ahead)
    return Meant(there, there, "d")


def _add(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError:
        return day


def _shift(day: date, count: int, unit: str, *, about: bool = False) -> Meant:
    """The day, week, month or year that is ``count`` away; "about": counted from the day."""
    if unit == "d":
        return _one(day, count)
    if unit == "w":
        if about:
            return _one(day, 7 * count)
        monday = _add(day, 7 * count - day.weekday())
        return Meant(monday, _add(monday, 6), "w")
    months = count * (12 if unit == "y" else 1)
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    year = min(max(year, 1), 9998)
    if unit == "y":
        return Meant(date(year, 1, 1), date(year, 12, 31), "y")
    first = date(year, month + 1, 1)
    last = _add(date(year + (month + 1) // 12, (month + 1) % 12 + 1, 1), -1)
    return Meant(first, last, "m")


def shift(year: int, month: int, day: int, count: int, unit: str) -> Reading | None:
    """Shift a date by a span; None if the calendar has no such day."""
    months = count * {"m": 1, "y": 12}.get(unit, 0)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    try:
        moved = _add(date(year, month + 1, day), count * {"d": 1, "w": 7}.get(unit, 0))
    except ValueError:
        return None
    return moved.year, moved.month, moved.day


#: Relative words that are something else in another language ("hier" is "here" in German).
_ONLY_AT_HOME = frozenset(map(fold_in_place, ("hier", "morgen", "mañana", "dün", "i år", "i går")))


def find_relative(text: str, languages: Iterable[str]) -> str | None:
    """The first relative date in a text outside titles; None if there is none.

    ``languages`` are those that the text may be in: a few words count in their own language only.
    """
    flat = fold_in_place(text).replace("’", "'")
    at_home = set(languages)
    for language, match in _relative_phrases(flat):
        written = text[match.start() : match.end()]
        if match.group() in _LASTING or _is_title(text, match.start(), written):
            continue
        if language not in at_home and match.group() in _ONLY_AT_HOME:
            continue
        if not _is_morning(flat, match):
            return written
    for pattern in (_NEXT_DAY, _AHEAD) if _AHEAD_UNIT.search(flat) else (_NEXT_DAY,):
        for match in pattern.finditer(flat):
            written = text[match.start() : match.end()]
            if written.startswith("faz ") and text[: match.start()].strip():
                continue  # an age
            if not _is_title_of_words(written):
                return written
    return None


def _is_title(text: str, start: int, written: str) -> bool:
    """Whether a capital inside the sentence marks a title ("The Day After Tomorrow")."""
    before = text[:start].rstrip()
    if before and before[-1] not in ".!?:;…" and written[:1].isupper():
        return True
    following = re.match(r"\s+(\S+)\s+(\S+)", text[start + len(written) :])
    return bool(
        written[:1].isupper()
        and following
        and following[1][:1].isupper()
        and following[2][:1].isupper()
    )


def _is_title_of_words(written: str) -> bool:
    """Whether all words have a capital ("Last Friday Night")."""
    return all(word[0].isupper() for word in written.split())


#: "morgen" and "mañana" are the morning as well, "hier" is "here", "oggi" is part of "oggigiorno".
_MORNING = re.compile(
    r"(?:\b(?:la|las|cada|toda|por la|de la|una|am|jeden|guten|jede|elke|'s|der|den|goede"
    r"|buena)\s)$"
)


def _is_morning(flat: str, match: re.Match[str]) -> bool:
    if match.group() in ("manana", "morgen"):
        return bool(_MORNING.search(flat[max(match.start() - 12, 0) : match.start()]))
    return False


@cache
def _weekday_names() -> str:
    names = [name for name in _weekdays() if len(name) > 3]
    return "|".join(sorted(names, key=len, reverse=True))


_NEXT_DAY = re.compile(
    rf"\b(?:next|this|last|this coming|coming|past|nächsten?|diesen|kommenden?|letzten?"
    rf"|nachsten?|naechsten?"
    rf"|volgende|aanstaande|afgelopen|proximo|este|pasado|prossim[oa]|scors[oa]|questo|nasta"
    rf"|forra|(?:во?|на|до|со?) (?:следующ|прошл|эт|ближаиш)[а-я]+|gelecek|gecen|bu|ce|cette|questa"
    rf"|questo|w przyszl[aeyi]|w zeszl[aeyi]|w t[eęa]|kommande) (?:{_weekday_names()})\b"
    rf"|\b(?:{_weekday_names()}) (?:prochaine?|derniere?|prossim[oa]|scors[oa]|que viene|pasado"
    rf"|proximo|que vem|passad[oa])\b"
    r"|\b(?:下|上|这|這)(?:周|週|个?星期)[一二三四五六日天]"
)


def _counts() -> str:
    """An alternation of the words for small numbers in all languages, and of figures."""
    names = {fold(word) for word in COUNT_WORDS if word.isalpha() and word.isascii()}
    names |= {fold_in_place(word) for word in COUNT_WORDS if word.isalpha()}
    return "|".join([r"\d{1,3}", *sorted(names, key=len, reverse=True)])


_COUNT = (
    rf"(?:{_counts()}|a few|a couple of|several|einigen|wenigen|ein paar|quelques|unos|unas|alcuni"
    r"|alguns|algumas|enkele|paar|kilka|nagra|несколько|кілька|пару|birkac)"
)
#: One of these is in each of the expressions below, which are slow to look for.
_AHEAD_UNIT = re.compile(
    " (?:day|night|week|month|year|hour|fortnight|tag|woche|monat|jahr|jour|semain|mois|an|dia"
    "|seman|mes|dag|weken|maand|giorn|settiman|veckor|manader|dni|tygodn|tydzien|miesia|miesie|lat"
    "|rok|ar|ден|дня|дне|недел|месяц|год|лет|gun|hafta|ay|yil|today|выходных|fim|fin)"
    "|[天日周週期月年일주월달년]"
)
_AHEAD = re.compile(
    rf"\b{_COUNT} (?:day|night|week|month|year|hour|fortnight)s? (?:ago|from now)\b"
    rf"|\bin {_COUNT} (?:days?|weeks?|months?)\b(?! (?:of|or|after|before))"
    rf"|\bvor {_COUNT} (?:tag|woche|monat|jahr)\w{{0,2}}\b"
    rf"|\bin {_COUNT} (?:tag|tagen|wochen?|monat(?:en)?|jahr(?:en)?)\b"
    rf"|\b(?:il y a|dans|d'ici) {_COUNT} (?:jours?|semaines?|mois|ans?)\b"
    rf"|\b(?:hace|dentro de|en|em|over|om|za|tra|fra|daqui a|ha|faz) {_COUNT} (?:dias?|semanas?"
    r"|mes(?:es|i|e)?|anos?|dagen|weken|maanden|giorn[io]|settiman[ae]|ann[io]|dagar|veckor|manader"
    r"|dni|tygodnie|tygodni|miesiace|miesiecy|lata|lat)\b"
    rf"|\b{_COUNT} (?:giorn[io]|settiman[ae]|mes[ei]|ann[io]) fa\b"
    rf"|\b{_COUNT} (?:dias?|semanas?|mes(?:es)?|anos?) atras\b"
    rf"|\b{_COUNT} (?:dag(?:en)?|we(?:ek|ken)|maand(?:en)?|jaar) geleden\b"
    rf"|\b{_COUNT} (?:dni|tygodni[ea]?|miesiac[ea]?|miesiecy|lat|lata|tydzien|rok) temu\b"
    r"|\b(?:za|w zeszl[aey]|w przyszl[aey]) (?:tydzien|miesiac|rok)\b"
    rf"|\bfor {_COUNT} (?:dagar|veckor|manader|ar) sedan\b"
    r"|\bчерез (?:[а-я0-9]{1,10} )?(?:день|дня|днеи|неделю|недели|недель|месяц[а-я]*|год[а-я]*"
    r"|лет)\b"
    r"|\b(?:[а-я0-9]{1,10} )?(?:день|дня|днеи|неделю|недели|недель|месяц[а-я]*|года?|лет) назад\b"
    rf"|\b{_COUNT} (?:gun|hafta|ay|yil) (?:sonra|once)\b"
    rf"|\b(?:{_weekday_names()}) week\b"
    rf"|\b(?:{_weekday_names()}) in (?:einer|zwei) wochen?\b"
    rf"|\b(?:a|one|two) weeks? (?:on|from) (?:{_weekday_names()})\b"
    r"|\b(?:later|earlier) (?:today|this (?:week|month|year))\b"
    r"|\bна (?:этих|следующих|прошлых) выходных\b|\b(?:ce|questo|este|deze|ten|ta|te)"
    r" (?:week-?end|fim"
    r" de semana|fin de semana|fine settimana)\b"
    r"|[一二两兩三四五六七八九十几幾\d]{1,3}(?:天|日|周|週間|个?星期|个月|か月|ヶ月"
    r"|年)(?:后|後|前|以后|之后|以前|之前)"
    r"|大后天|大前天|月底前|[这這本下上](?:个|個)?月底|(?:来|先|今|再来)(?:週|月)"
    r"|(?:[\d일이삼사오육칠팔구십두세네]{1,3}) ?(?:일|주|개월|달|년) (?:후|뒤|전)"
)
