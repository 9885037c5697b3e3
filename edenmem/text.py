"""Text from people, models and databases: counted, cut, and made safe for where it goes next.

Each function is linear in the length of the text and never raises for any ``str``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache

from edenmem.models.ids import utc_now

#: A statement of thirty words is shorter in any language; one "word" without end is not kept.
MOST_CHARACTERS = 1000

# -- words ---------------------------------------------------------------------------------------

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"
_THAI_LAO = "\u0e00-\u0eff"
_KHMER_MYANMAR = "\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
#: What parts words although it is no white space: dashes between clauses, the ellipsis, the
#: zero-width space that Thai and Khmer type between words, and CJK punctuation.
_PARTS = "\u200b\u2014\u2026\u3001-\u3004\u3008-\u3020\u3030\u30fb\uff01-\uff0f\uff1a-\uff20"

#: Characters to a word, for scripts that put no spaces between words.
_CHARACTERS_PER_WORD = {"han": 1, "kana": 3, "thai_lao": 5, "khmer_myanmar": 6}


@cache  # compiled when first needed: it takes milliseconds, and many commands count no words
def _word_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A token; what makes a run between spaces a word: a letter, a digit or a pictograph."""
    return (
        re.compile(
            f"(?P<han>[{_HAN}]+)|(?P<kana>[{_KANA}]+)|(?P<thai_lao>[{_THAI_LAO}]+)"
            f"|(?P<khmer_myanmar>[{_KHMER_MYANMAR}]+)"
            rf"|(?P<spaced>[^\s{_PARTS}{_HAN}{_KANA}{_THAI_LAO}{_KHMER_MYANMAR}]+)"
        ),
        re.compile("[^\\W_]|[\u2600-\u27bf\U0001f000-\U0001faff]"),
    )


_NO_PUNCTUATION = dict.fromkeys(
    code for code in range(128) if not (chr(code).isalnum() or chr(code).isspace())
)


def _tokens(text: str) -> Iterator[tuple[int, int, int]]:
    """(start, end, characters to a word; 0: the whole token is one word) of all that counts."""
    token, substance = _word_patterns()
    for match in token.finditer(text):
        kind = match.lastgroup or ""
        start, end = match.span()
        if kind != "spaced":
            yield start, end, _CHARACTERS_PER_WORD[kind]
        elif substance.search(text, start, end):
            yield start, end, 0


def _words(start: int, end: int, per_word: int) -> int:
    return -(-(end - start) // per_word) if per_word else 1


def word_count(text: str) -> int:
    """The number of words, also for scripts that put no spaces between them.

    Text with spaces (Korean too) has one word for each run between spaces in which there is a
    letter, a digit or a pictograph; "don't", "well-known" and an URL are one, a bullet is none.
    Elsewhere words are estimated from characters, without a dictionary:

    - Han: each ideograph is one. That is what a length in Chinese is stated in (字), how word
      processors count, and what a model that is given a limit in words takes it to mean.
    - Kana: three characters are one; particles and endings have one to three, loanwords about
      four. With ideographs at one, ordinary Japanese comes to the two characters for each English
      word that translators reckon with.
    - Thai and Lao: five are one, vowel signs and tone marks included (words in segmented Thai
      corpora have between four and five on average).
    - Khmer and Myanmar: six are one; their words have about two syllables of three code points.

    An estimate errs on the side of more words: a run that has begun a word counts it whole.
    """
    other = ""
    if not text.isascii():  # white space is in no token, so each is whole in its line and piece
        lines = text.splitlines()
        pieces = [piece for line in lines if not line.isascii() for piece in line.split()]
        other = " ".join([piece for piece in pieces if not piece.isascii()])
        plain = [line for line in lines if line.isascii()]
        text = " ".join(plain + [piece for piece in pieces if piece.isascii()])
    # Without its punctuation, what had neither letter nor digit is gone.
    words = len(text.translate(_NO_PUNCTUATION).split())
    return words + sum(_words(*token) for token in _tokens(other))


def truncate_words(text: str, limit: int) -> str:
    """``text`` if it has at most ``limit`` words, else its beginning, ending in "…".

    The result never has more than ``limit`` words by `word_count`, and no combining mark is parted
    from its letter.
    """
    if text.isascii() and len(text.split()) <= limit:
        return text  # each run between spaces is one word at most
    left, cut = max(limit, 0), 0
    for start, end, per_word in _tokens(text):
        words = _words(start, end, per_word)
        if words > left:
            if left and per_word:
                cut = _before_marks(text, start, start + left * per_word)
            return text[:cut].rstrip() + "…"
        left, cut = left - words, end
    return text


def _before_marks(text: str, start: int, cut: int) -> int:
    """The last place at or before ``cut`` that does not part a letter from its marks."""
    while cut > start and unicodedata.category(text[cut])[0] == "M":
        cut -= 1
    return cut


# -- storage -------------------------------------------------------------------------------------

_RETURNS = re.compile("\r\n?")
_NOT_STORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """``text`` without what no store can hold: control codes (but tab and newline), surrogates.

    Line ends become newlines, and two surrogates that are one character are joined. Nothing else
    is altered; in particular the text is not normalised. Cleaning twice is the same as once.
    """
    if text.isprintable():
        return text
    kept = _NOT_STORABLE.sub("", _RETURNS.sub("\n", text))
    if _SURROGATES.search(kept):
        kept = kept.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return kept


def normalize_name(name: str) -> str:
    """Return a name in the form in which new names are stored (NFC)."""
    return unicodedata.normalize("NFC", name)


def name_spellings(name: str) -> tuple[str, ...]:
    """Return a name as typed, then with its accents composed (NFC) and decomposed (NFD).

    All three look alike; names of the platform may be stored in any of them.
    """
    return tuple(dict.fromkeys((name, normalize_name(name), unicodedata.normalize("NFD", name))))


# -- terminals -----------------------------------------------------------------------------------

#: C0 but tab and newline, DEL and C1, separators of lines and paragraphs, bidirectional
#: embeddings, overrides and isolates, surrogates.
_NOT_PRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def _show(match: re.Match[str]) -> str:
    """What stands for a character that is not printable."""
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    if code in (0x2028, 0x2029):
        return "\n"
    if code == 0x7F:
        return "\u2421"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def flat(text: str) -> str:
    """``text`` on one line, without what no store can hold."""
    return " ".join(clean(text).split())


def tidy(text: str, words: int) -> str:
    """`flat` text, cut with "…" to ``words`` and to `MOST_CHARACTERS`."""
    line = flat(text)
    if len(line) > MOST_CHARACTERS:
        line = line[: MOST_CHARACTERS - 1].rstrip() + "…"
    return truncate_words(line, words)


def printable(text: str) -> str:
    """``text`` for a terminal: it cannot move the cursor, set the title or reverse the reading.

    Control codes show as their pictures (ESC as ␛), C1 codes and bidirectional embeddings,
    overrides and isolates as escapes, a surrogate as �. Tabs, newlines, joiners (emoji, Persian)
    and directional marks (Arabic, Hebrew) stay.
    """
    return _NOT_PRINTABLE.sub(_show, text.replace("\r\n", "\n"))


def one_line(text: str, width: int | None = None) -> str:
    """`printable` text with all white space as single spaces, cut with "…" to ``width`` columns.

    Wide characters take two columns, combining marks none.
    """
    line = " ".join(printable(text).split())
    if width is None or (len(line) <= width and line.isascii()):
        return line
    used, cut = 0, 0
    for place, character in enumerate(line):
        used += _columns(character)
        if used <= width - 1:
            cut = place + 1
        elif used > width:
            return line[:cut].rstrip("\u200d ") + "…" if width > 0 else ""
    return line


def display_width(text: str) -> int:
    """Columns on a terminal: wide characters take two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# -- times ---------------------------------------------------------------------------------------

_STEPS = (
    (365 * 86_400, "y"),
    (30 * 86_400, "mo"),
    (7 * 86_400, "w"),
    (86_400, "d"),
    (3_600, "h"),
    (60, "m"),
)


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, in the largest unit: ``3d ago``; ``in 5m`` for the future."""
    seconds = ((now or utc_now()) - moment).total_seconds()
    for size, unit in _STEPS:
        if abs(seconds) >= size:
            count = int(abs(seconds) // size)
            return f"{count}{unit} ago" if seconds > 0 else f"in {count}{unit}"
    return "now"


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC with ``Z``, to the second: for people. Data has all that is stored."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# -- XML -----------------------------------------------------------------------------------------

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_XML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})
#: Any of what is dropped or written otherwise; most texts have none of it.
_ALTERED = re.compile(f'{_NOT_XML.pattern[:-1]}&<>"\r]')


def escape_xml(text: str) -> str:
    """``text`` for an element, or for an attribute in double quotes.

    What XML 1.0 has no way to write is dropped. Apostrophes stay as they are: every one of them
    would cost the model that reads it several tokens.
    """
    return _NOT_XML.sub("", text).translate(_XML) if _ALTERED.search(text) else text
