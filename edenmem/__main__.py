"""Entry point of ``python -m edenmem`` and the ``edenmem`` script."""

from __future__ import annotations

import gc
import sys

from edenmem import __version__

#: New objects between two searches for garbage: more than a short command creates. Python's 700
#: would search what was just imported some fifty times, for nothing.
_GARBAGE_AFTER = 50_000


def main() -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:]
    # Fast path for scripts: do not load the command line.
    if arguments == ["--version"] and sys.stdout is not None:
        sys.stdout.write(f"edenmem {__version__}\n")
        return
    gc.set_threshold(_GARBAGE_AFTER)
    from edenmem.cli.app.root import run

    code = run(arguments)
    gc.freeze()  # exempts everything from the last search, before the process ends
    sys.exit(code)


if __name__ == "__main__":
    main()
