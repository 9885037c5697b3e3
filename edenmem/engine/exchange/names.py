"""Names of files and folders that are safe on every system, and never two things' at once."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

from edenmem.models.ids import derived_id, is_id

_LONGEST = 80  # bytes; with an id behind it far below what file systems allow
#: Names that Windows keeps for devices, whatever stands behind a dot.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?\Z", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w\-. ]+")


def file_names(labels: Mapping[str, str]) -> dict[str, str]:
    """A name for each key (an id, or what stands for one), from its label.

    Two labels that a file system may take for one, by case or by how accents are written, each get
    a part of their key. The same labels give the same names in whatever order they come.
    """
    names = {key: safe_name(label) for key, label in labels.items()}
    for length in (8, 24):
        met = Counter(folded(name) for name in names.values())
        names = {
            key: f"{name}-{_id(key)[:length]}" if not name or met[folded(name)] > 1 else name
            for key, name in names.items()
        }
    return names


def safe_name(label: str) -> str:
    """The label without what a file's name may not have; empty if nothing is left."""
    name = _UNSAFE.sub("-", unicodedata.normalize("NFC", label))
    name = name.encode()[:_LONGEST].decode(errors="ignore").strip(" .-")
    return f"_{name}" if _DEVICE.match(name) else name


def folded(name: str) -> str:
    """What a file system that knows neither case nor accents' spelling compares."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _id(key: str) -> str:
    return key if is_id(key) else derived_id("name", key)
