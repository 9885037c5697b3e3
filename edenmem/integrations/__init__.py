"""Memory for agent frameworks: each module implements one interface of one framework.

Nothing here is imported before it is used, so a module needs its framework only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def requires(package: str) -> Iterator[None]:
    """Import a framework.

    Raises:
        ImportError: the package is missing, or an incompatible version; the text names it.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"this integration needs the package {package} ({error}): pip install {package}",
            name=error.name,
        ) from error
