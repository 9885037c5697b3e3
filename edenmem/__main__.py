"""The process: ``python -m edenmem`` and the ``edenmem`` script."""

from __future__ import annotations

import sys

from edenmem import __version__


def main() -> None:
    """Run the command line and leave with its exit code."""
    arguments = sys.argv[1:]
    # Without loading the command line, for scripts that probe.
    if arguments == ["--version"] and sys.stdout is not None:
        sys.stdout.write(f"edenmem {__version__}\n")
        return
    from edenmem.cli.app.root import run

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
