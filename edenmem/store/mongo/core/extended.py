"""Convert BSON values to JSON and back, losslessly.

Types that JSON has are plain JSON; all others are MongoDB Extended JSON (``{"$oid": …}``). An
object whose own keys begin with ``$`` is wrapped in `DOCUMENT`, to distinguish it from those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bson import json_util
from bson.code import Code
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.int64 import Int64

from edenmem.models.host import DOCUMENT, literal_object

_READING = json_util.JSONOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
#: The first key of each type that `to_json` writes.
_TAGS = frozenset(
    {
        "$oid",
        "$date",
        "$numberLong",
        "$numberDouble",
        "$numberDecimal",
        "$binary",
        "$regularExpression",
        "$timestamp",
        "$minKey",
        "$maxKey",
        "$code",
    }
)


def to_json(value: Any) -> Any:
    """Convert a BSON value to JSON."""
    if value is None or isinstance(value, bool) or type(value) is str:  # `Code` is a str too
        return value
    if isinstance(value, Int64):  # small ones would return as 32-bit integers
        return {"$numberLong": str(value)} if -(2**31) <= value < 2**31 else int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else json_util.default(value)
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, DBRef):
        value = value.as_doc()
    if isinstance(value, Mapping):
        return literal_object({str(key): to_json(item) for key, item in value.items()})
    if isinstance(value, datetime | DatetimeMS):
        return json_util.default(value, json_util.RELAXED_JSON_OPTIONS)
    if isinstance(value, Code) and value.scope is not None:
        return {"$code": str(value), "$scope": to_json(value.scope)}
    return json_util.default(value, json_util.CANONICAL_JSON_OPTIONS)


def from_json(value: Any) -> Any:
    """Convert the JSON of `to_json` back to the BSON value."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = value.get(DOCUMENT)
    if len(value) == 1 and isinstance(inner, dict):
        return {key: from_json(item) for key, item in inner.items()}
    plain = {key: from_json(item) for key, item in value.items()}
    if next(iter(value), "") not in _TAGS:
        return plain
    try:
        return json_util.object_hook(dict(plain), _READING)
    except (ValueError, TypeError, ArithmeticError):
        return plain  # not Extended JSON
