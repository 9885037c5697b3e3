"""Convert vectors in documents: an array of doubles, or a BSON float32 vector."""

from __future__ import annotations

import struct
from array import array
from typing import Any, Literal

from bson.binary import Binary, BinaryVectorDtype

_VECTOR_SUBTYPE = 9


def encode(vector: bytes, storage: Literal["array", "bindata"]) -> list[float] | Binary:
    """Return the stored form of little-endian float32 bytes."""
    numbers = list(struct.unpack(f"<{len(vector) // 4}f", vector))
    if storage == "bindata":
        return Binary.from_vector(numbers, BinaryVectorDtype.FLOAT32)
    return numbers


def decode(stored: Any) -> bytes | None:
    """Return little-endian float32 bytes; None if the vector is missing or only zeros.

    The platform stored zeros after a failed embedding.
    """
    if isinstance(stored, Binary) and stored.subtype == _VECTOR_SUBTYPE:
        vector = stored.as_vector()
        numbers = list(vector.data)
    elif isinstance(stored, list) and stored:
        numbers = stored
    else:
        return None
    if not any(numbers) or not all(isinstance(each, int | float) for each in numbers):
        return None
    return _float32(numbers)


def _float32(numbers: list[Any]) -> bytes:
    packed = array("f", numbers)
    if struct.pack("=f", 1.0) != struct.pack("<f", 1.0):  # a big-endian machine
        packed.byteswap()
    return packed.tobytes()
