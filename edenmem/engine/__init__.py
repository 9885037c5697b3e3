"""The engine: what edenmem does, whoever asks. Knows neither Typer nor Rich nor a database."""
