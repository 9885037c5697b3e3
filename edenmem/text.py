"""Count, cut and sanitize text from users, models and databases.

Each function is linear in the length of the text and raises for no ``str``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache

from edenmem.models.ids import utc_now

#: A statement of thirty words is shorter in any language; longer "words" are cut.
MOST_CHARACTERS = 1000

# -- words ---------------------------------------------------------------------------------------

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"
_THAI_LAO = "\u0e00-\u0eff"
_KHMER_MYANMAR = "\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
#: Word separators besides white space: em dash, ellipsis, CJK punctuation, and the zero-width
#: space that Thai and Khmer use between words.
_PARTS = "\u200b\u2014\u2026\u3001-\u3004\u3008-\u3020\u3030\u30fb\uff01-\uff0f\uff1a-\uff20"

#: Characters per word in scripts without spaces between words.
_CHARACTERS_PER_WORD = {"han": 1, "kana": 3, "thai_lao": 5, "khmer_myanmar": 6}


@cache  # compiled on first use: it takes milliseconds, and many commands count no words
def _word_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a token, and of the letter, digit or pictograph in a word."""
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
    """Yield (start, end, characters per word) of each token; 0: the token is one word."""
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
    """Count words, also in scripts without spaces between words.

    In text with spaces (including Korean), each run between spaces with a letter, digit or
    pictograph is one word: "don't", "well-known" and a URL count as one, a bullet as zero. Other
    scripts are estimated from characters, without a dictionary:

    - Han: one ideograph per word. Lengths of Chinese texts are stated in ideographs (字), word
      processors count them, and models read a word limit this way.
    - Kana: three characters per word; particles and endings have one to three, loanwords about
      four. Ordinary Japanese then has two characters per English word, as translators estimate.
    - Thai and Lao: five characters per word, including vowel signs and tone marks (segmented Thai
      corpora average four to five).
    - Khmer and Myanmar: six characters per word, about two syllables of three code points.

    Estimates round up: an incomplete word counts as a whole one.
    """
    other = ""
    if not text.isascii():  # tokens contain no white space: none spans two lines or pieces
        lines = text.splitlines()
        pieces = [piece for line in lines if not line.isascii() for piece in line.split()]
        other = " ".join([piece for piece in pieces if not piece.isascii()])
        plain = [line for line in lines if line.isascii()]
        text = " ".join(plain + [piece for piece in pieces if piece.isascii()])
    # Removing punctuation also removes runs without a letter or digit.
    words = len(text.translate(_NO_PUNCTUATION).split())
    return words + sum(_words(*token) for token in _tokens(other))


def truncate_words(text: str, limit: int) -> str:
    """Cut ``text`` to ``limit`` words, with a final "…" if it is longer.

    The result has at most ``limit`` words by `word_count`. Combining marks stay with their letter.
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
    """Move ``cut`` back so that it does not separate a letter from its marks."""
    while cut > start and unicodedata.category(text[cut])[0] == "M":
        cut -= 1
    return cut


# -- storage -------------------------------------------------------------------------------------

# Patterns are compiled on first use: together they take longer than most commands.
_RETURNS = "\r\n?"
_NOT_STORABLE = "[\x00-\x08\x0b-\x1f\x7f]"
_SURROGATES = "[\ud800-\udfff]"


def clean(text: str) -> str:
    """Remove what stores cannot hold: surrogates, and control codes except tab and newline.

    Line ends become newlines, and surrogate pairs become one character. The text is not
    normalized. The function is idempotent.
    """
    if text.isprintable():
        return text
    kept = re.sub(_NOT_STORABLE, "", re.sub(_RETURNS, "\n", text))
    if re.search(_SURROGATES, kept):
        kept = kept.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return kept


def normalize_name(name: str) -> str:
    """Return a name in NFC, the form of stored names."""
    return unicodedata.normalize("NFC", name)


def name_spellings(name: str) -> tuple[str, ...]:
    """Return a name as typed, in NFC and in NFD.

    All three look the same; the platform may store any of them.
    """
    return tuple(dict.fromkeys((name, normalize_name(name), unicodedata.normalize("NFD", name))))


# -- what readers do not see ---------------------------------------------------------------------

#: Characters without a shape: soft hyphen, fillers, zero-width spaces, invisible operators, byte
#: order mark, annotations, variation selectors of ideographs, and tags, which spell hidden ASCII.
HIDDEN = (
    "\u00ad\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e0fff"
)
#: The flags of England, Scotland and Wales, which are spelled with tags.
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in name) + "\U000e007f"
    for name in ("gbeng", "gbsct", "gbwls")
)
#: What a joiner shapes: letters from Hebrew on, their marks, and emoji; no European letters.
_SHAPED = "\u0590-\u115e\u1161-\u180d\u180f-\u1dff\u2190-\ufefe\U00010000-\U000dffff"
_JOINERS = "\u200c\u200d"
_UNSEEN = f"({_FLAGS})|[{HIDDEN}]|(?<![{_SHAPED}])[{_JOINERS}]|[{_JOINERS}](?=[{HIDDEN}{_JOINERS}])"
#: Controls and marks of direction, and C1 codes.
_DIRECTIONS = "[\x80-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"


def _without_hidden(text: str) -> str:
    """Remove characters without a shape; joiners and tags stay where they have a meaning."""
    if text.isascii() or not re.search(f"[{HIDDEN}{_JOINERS}]", text):
        return text
    return re.sub(_UNSEEN, lambda found: found[1] or "", text)


def legible(text: str) -> str:
    """Return the `clean` text as a model may read it: without characters that people do not see.

    Joiners stay in the scripts and emoji that need them.
    """
    text = clean(text)
    if text.isascii():
        return text
    return _without_hidden(re.sub(_DIRECTIONS, "", re.sub("[\u2028\u2029]", "\n", text)))


# -- terminals -----------------------------------------------------------------------------------

#: C0 except tab and newline, DEL and C1, line and paragraph separators, bidirectional
#: embeddings, overrides and isolates, surrogates.
_NOT_PRINTABLE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


def _show(match: re.Match[str]) -> str:
    """Return the visible replacement of an unprintable character."""
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


def is_displayable(name: str) -> bool:
    """Check that a name is one line, and shown whole and as it is."""
    return printable(name) == name and "\n" not in name and "\t" not in name


def flat(text: str) -> str:
    """Return the `clean` text on one line."""
    return " ".join(clean(text).split())


def tidy(text: str, words: int) -> str:
    """Return `flat` text, cut with "…" to ``words`` and to `MOST_CHARACTERS`."""
    line = flat(text)
    if len(line) > MOST_CHARACTERS:
        line = line[: MOST_CHARACTERS - 1].rstrip() + "…"
    return truncate_words(line, words)


def printable(text: str) -> str:
    """Make text safe for a terminal: no cursor movement, window title or reversed direction.

    Control codes become control pictures (ESC: ␛). C1 codes and bidirectional embeddings,
    overrides and isolates become escapes, surrogates �. Characters without a shape are removed.
    Tabs, newlines, joiners (emoji, Persian) and directional marks (Arabic, Hebrew) stay.
    """
    text = _without_hidden(text)
    if text.isprintable():
        return text
    return re.sub(_NOT_PRINTABLE, _show, text.replace("\r\n", "\n"))


def one_line(text: str, width: int | None = None) -> str:
    """Return `printable` text on one line, cut with "…" to ``width`` columns.

    Runs of white space become one space. Wide characters take two columns, combining marks none.
    """
    line = " ".join(printable(text).split())
    return line if width is None else cut_line(line, width)


def cut_line(line: str, width: int) -> str:
    """Return the result of `one_line`, cut with "…" to ``width`` columns."""
    if len(line) <= width and line.isascii():
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
    """Return the columns of a text: two for wide characters, none for combining marks."""
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
    """Return the distance in the largest unit: ``3d ago``; ``in 5m`` for the future."""
    seconds = ((now or utc_now()) - moment).total_seconds()
    for size, unit in _STEPS:
        if abs(seconds) >= size:
            count = int(abs(seconds) // size)
            return f"{count}{unit} ago" if seconds > 0 else f"in {count}{unit}"
    return "now"


def iso(moment: datetime) -> str:
    """Format a time for people: ISO 8601 in UTC with ``Z``, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# -- values --------------------------------------------------------------------------------------


def cell(value: object) -> str:
    """Format a value on one line; "" for an empty one, times relative."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return ago(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return one_line(str(value))


def in_full(value: object) -> str:
    """Format a value as `cell`, with times absolute and relative."""
    return f"{iso(value)} ({ago(value)})" if isinstance(value, datetime) else cell(value)


def figures(said: object) -> str:
    """Format numbers with their names on one line."""
    match said:
        case Mapping():
            return ", ".join(
                f"{name} ({figures(value)})"
                if isinstance(value, Mapping)
                else f"{name} {figures(value)}"
                for name, value in said.items()
                if value is not None
            )
        case list() | tuple():
            return " ".join(map(figures, said))
        case _:
            return cell(said)


# -- XML -----------------------------------------------------------------------------------------

_NOT_XML = "[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]"
#: Characters of markup and their escapes; the ampersand first.
_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\r", "&#13;"))


def escape_xml(text: str) -> str:
    """Escape text for an element, or for an attribute in double quotes.

    Characters that are invalid in XML 1.0 are dropped. Apostrophes stay: escaped ones would cost
    the model several tokens each.
    """
    if not text.isprintable():
        text = re.sub(_NOT_XML, "", text)
    for character, escaped in _ESCAPES:
        text = text.replace(character, escaped)
    return text


def many(count: int, one: str, several: str = "") -> str:
    """Return a count with its noun: "1 fact", "2 facts"."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"
