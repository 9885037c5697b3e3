"""Entry point of ``python -m edenmem`` and the ``edenmem`` script."""

from __future__ import annotations

import sys

from edenmem import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:]
    # Fast path for scripts: do not load the command line.
    if arguments == ["--version"] and sys.stdout is not None:
        sys.stdout.write(f"edenmem {__version__}\n")
        return
    from edenmem.cli.app.root import run

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
