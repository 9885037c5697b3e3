"""A strict OpenAI-compatible server on loopback, for the real client.

It rejects the same requests as the real one: wrong keys, unknown models and parameters, and schemas
that are invalid for strict structured output. Failures are scripted: `FakeOpenAI.script` holds the
next replies; afterwards it answers normally.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

KEY = "sk-test-5ecret5ecret5ecret"
#: A reasoning model without custom temperature, and with the new name of the token limit only.
REASONING_MODEL = "reasoning-1"
CHAT_MODELS = frozenset({"fast-1", "slow-1", "premium-1", REASONING_MODEL})
#: Maximum output of the models.
MOST_OUTPUT = 100_000
EMBEDDING_DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "mini": 8}

_LIMITS = frozenset({"max_tokens", "max_completion_tokens"})
_CHAT_FIELDS = frozenset({"model", "messages", "response_format", "temperature"}) | _LIMITS
_EMBEDDING_FIELDS = frozenset({"model", "input", "encoding_format", "dimensions"})
_STRICT_KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "anyOf"),
        *("$ref", "$defs", "description", "pattern", "minimum", "maximum", "minItems", "maxItems"),
    }
)


@dataclass(frozen=True)
class Reply:
    """One answer. ``hang`` never answers; ``cut`` stops in the middle of the body."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False
    cut: bool = False


def failing(
    status: int,
    message: str = "no",
    code: str | None = None,
    param: str | None = None,
    **headers: str,
) -> Reply:
    """Return an error in OpenAI's format; ``retry_after="3"`` becomes a header."""
    return Reply(
        status,
        {"error": {"message": message, "type": "error", "param": param, "code": code}},
        {name.replace("_", "-"): value for name, value in headers.items()},
    )


def completion(
    content: str | None,
    *,
    finish_reason: str = "stop",
    refusal: str | None = None,
    usage: tuple[int, int] | None = (100, 20),
) -> Reply:
    """Return a chat completion with this text."""
    return Reply(body=_completion("fast-1", content, finish_reason, refusal, usage))


def embeddings(*vectors: Any, indexes: list[int] | None = None) -> Reply:
    """Return these vectors for any request."""
    return Reply(body=_embeddings("mini", vectors, indexes or list(range(len(vectors)))))


class FakeOpenAI:
    """A context manager. ``requests`` are the valid bodies."""

    def __init__(
        self, answer: Callable[[dict[str, Any]], str] = lambda body: "{}", *, key: str | None = KEY
    ) -> None:
        self.answer = answer
        self.key = key
        self.takes_schema = True
        self.takes_json = True
        self.refuses: frozenset[str] = frozenset()  # unsupported parameters
        self.redirects: dict[str, str] = {}  # path → target
        self.script: deque[Reply] = deque()
        self.requests: list[dict[str, Any]] = []
        self.most_at_once = 0
        self.hanging = threading.Event()  # a request stays without an answer
        self._at_once = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """Return the value of ``base_url``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reply(self, path: str, authorization: str, body: Any) -> Reply:
        """Return the reply to one request."""
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            scripted = self.script.popleft() if self.script else None
            self.requests.append(body)
        try:
            if scripted is not None:
                if scripted.hang:
                    self.hanging.set()
                    self._closing.wait()
                return scripted
            return self._behave(path, authorization, body)
        finally:
            with self._lock:
                self._at_once -= 1

    def _behave(self, path: str, authorization: str, body: dict[str, Any]) -> Reply:
        if self.key is not None and authorization != f"Bearer {self.key}":
            return failing(401, f"Incorrect API key provided: {authorization}", "invalid_api_key")
        allowed = {
            "/v1/chat/completions": _CHAT_FIELDS,
            "/v1/embeddings": _EMBEDDING_FIELDS,
        }.get(path)
        if allowed is None:
            return failing(404, f"Invalid URL (POST {path})")
        if unknown := set(body) - allowed:
            return failing(400, f"Unrecognized request arguments: {sorted(unknown)}")
        if path.endswith("embeddings"):
            return self._embed(body)
        return self._chat(body)

    def _chat(self, body: dict[str, Any]) -> Reply:
        if body["model"] not in CHAT_MODELS:
            return failing(404, f"The model {body['model']!r} does not exist", "model_not_found")
        for message in body["messages"]:
            if set(message) != {"role", "content"} or not message["content"]:
                return failing(400, f"Invalid message: {message}")
        if (problem := self._refuse(body)) is not None:
            return problem
        wanted = body.get("response_format")
        if wanted is None:
            if self.takes_json:
                return failing(400, "Missing response_format")
        elif wanted["type"] == "json_schema":
            if not self.takes_schema:
                return failing(400, "Invalid value: 'json_schema'", "invalid_value")
            schema = wanted["json_schema"]
            if set(schema) != {"name", "schema", "strict"} or not schema["strict"]:
                return failing(400, "Invalid json_schema")
            if fault := _not_strict(schema["schema"]):
                return failing(400, f"Invalid schema for response_format: {fault}")
        elif not self.takes_json:
            return failing(400, "'response_format.type' must be 'json_schema' or 'text'")
        elif not any("JSON" in message["content"] for message in body["messages"]):
            return failing(400, "'messages' must contain the word 'json' in some form")
        return Reply(body=_completion(body["model"], self.answer(body), "stop", None, (100, 20)))

    def _refuse(self, body: dict[str, Any]) -> Reply | None:
        """Return the error for a parameter, in the words of real endpoints, or None."""
        refused = sorted(self.refuses & body.keys())
        if refused:
            name = refused[0]
            return failing(400, f"Unrecognized request argument supplied: {name}", param=name)
        reasons = body["model"] == REASONING_MODEL
        if reasons and "max_tokens" in body:
            return failing(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model."
                " Use 'max_completion_tokens' instead.",
                "unsupported_parameter",
                "max_tokens",
            )
        if reasons and body.get("temperature", 1) != 1:
            return failing(
                400,
                f"Unsupported value: 'temperature' does not support {body['temperature']} with this"
                " model. Only the default (1) value is supported.",
                "unsupported_value",
                "temperature",
            )
        limits = _LIMITS & body.keys()
        if len(limits) != 1 and not self.refuses >= _LIMITS:
            return failing(400, f"want one limit of the answer, not {sorted(limits)}")
        for name in limits:
            if type(body[name]) is not int or body[name] < 1:
                return failing(400, f"Invalid type for '{name}'", param=name)
            if body[name] > MOST_OUTPUT:
                supported = f"This model supports at most {MOST_OUTPUT} completion tokens"
                return failing(400, f"{name} is too large: {body[name]}. {supported}", param=name)
        if "temperature" not in body and not reasons and "temperature" not in self.refuses:
            return failing(400, "want a temperature")
        if type(body.get("temperature", 0.0)) not in {int, float}:
            return failing(400, "Invalid type for 'temperature'", param="temperature")
        return None

    def _embed(self, body: dict[str, Any]) -> Reply:
        own = EMBEDDING_DIMENSIONS.get(body["model"])
        if own is None:
            return failing(404, "The model does not exist", "model_not_found")
        if "dimensions" in body and not body["model"].startswith("text-embedding-3"):
            return failing(400, "This model does not support specifying dimensions.")
        texts = body["input"]
        if not isinstance(texts, list) or not texts or not all(texts) or len(texts) > 2048:
            return failing(400, "'$.input' is invalid.")
        size = body.get("dimensions", own)
        vectors = [fake_vector(text, size) for text in texts]
        return Reply(body=_embeddings(body["model"], vectors, list(range(len(texts)))))


def fake_vector(text: str, size: int) -> list[float]:
    """Return a fixed vector for a text, not scaled."""
    chance = random.Random(hashlib.sha256(text.encode()).digest())
    return [chance.gauss(0, 3) for _ in range(size)]


def _completion(
    model: str,
    content: str | None,
    finish_reason: str,
    refusal: str | None,
    usage: tuple[int, int] | None,
) -> dict[str, Any]:
    counted = usage and {
        "prompt_tokens": usage[0],
        "completion_tokens": usage[1],
        "total_tokens": sum(usage),
    }
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [
            {"index": 0, "finish_reason": finish_reason, "logprobs": None, "message": message}
        ],
        "usage": counted,
    }


def _embeddings(model: str, vectors: Any, indexes: list[int]) -> dict[str, Any]:
    return {
        "object": "list",
        "model": model,
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in zip(indexes, vectors, strict=True)
        ],
        "usage": {"prompt_tokens": 7 * len(indexes), "total_tokens": 7 * len(indexes)},
    }


def _not_strict(node: Any, where: str = "$") -> str | None:
    """Return why a schema is invalid for strict structured output, or None."""
    if "$ref" in node and len(node) > 1 and set(node) != {"$ref", "description"}:
        return f"{where}: $ref cannot have other keywords"
    if unknown := set(node) - _STRICT_KEYWORDS:
        return f"{where}: {sorted(unknown)} are not permitted"
    if node.get("type") == "object":
        if node.get("additionalProperties") is not False:
            return f"{where}: 'additionalProperties' is required to be false"
        if set(node.get("required", ())) != set(node.get("properties", {})):
            return f"{where}: 'required' must include every key in properties"
    inner: list[tuple[str, Any]] = [
        *node.get("properties", {}).items(),
        *node.get("$defs", {}).items(),
        *((str(i), option) for i, option in enumerate(node.get("anyOf", ()))),
        *([("items", node["items"])] if "items" in node else ()),
    ]
    return next((p for name, n in inner if (p := _not_strict(n, f"{where}.{name}"))), None)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    fake: FakeOpenAI

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore closed connections, which tests cause on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are separate writes
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.server.fake.reply(self.path, self.headers.get("Authorization", ""), body)
        if reply.hang:
            self.close_connection = True
            return
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if reply.cut:
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
