"""Start-up: the command line beside the import of the library that it is made with."""

from __future__ import annotations

from tests.benchmarks.measure import Bench, Row, Target, interleaved, median


def measure(bench: Bench) -> list[Row]:
    """``--version`` and ``scope list``."""
    uri = bench.world.uri
    listed = bench.command("scope", "list", "--uri", uri, "--format", "jsonl")
    version = bench.command("--version")
    taken = interleaved(
        {
            "typer": lambda: bench.python("-c", "import typer"),
            "version": lambda: bench.command("--version"),
            "scopes": lambda: bench.command("scope", "list", "--uri", uri),
        },
        bench.times(25),
    )
    unit = median(taken["typer"])
    baseline = 'python -c "import typer"'
    return [
        Row(
            "edenmem --version",
            "ms",
            median(taken["version"]),
            baseline,
            unit,
            Target("ratio", 1.5),
            agrees=version.startswith("edenmem "),
        ),
        Row(
            f"edenmem scope list, {listed.count(chr(10))} scopes",
            "ms",
            median(taken["scopes"]),
            baseline,
            unit,
            Target("ratio", 1.8),
            agrees=listed.count("\n") >= 1,
        ),
    ]
