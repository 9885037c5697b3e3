"""A real cross-encoder, small enough to compute its scores by hand.

No wheel has one, so this writes an ONNX graph and a tokenizer to a folder, like the export of a
trained model. The logit of a pair is 2 × (shared words of query and document) − 3, counting
repeated words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

Output = Literal["one", "flat", "two", "probability", "three", "tokens", "nan", "small"]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = (
    "anna ben lives in lisbon near the river has a grey cat called miso works as marine biologist"
    " plays cello what is name of who where does do tea coffee prefers over walk starts at lena"
    " folds whale ninety lanterns mole closed when how many"
)

#: Pairs of equal words, one of each text, per row of a batch; special tokens do not count.
_WITH_TYPES = """
    is_second = Cast <to = 1> (token_type_ids)
    is_first = Sub (one, is_second)
    first = Mul (is_word, is_first)
    second = Mul (is_word, is_second)
    rows = Unsqueeze (first, two_axis)
    columns = Unsqueeze (second, one_axis)
    both = Mul (rows, columns)
    shared = Mul (same, both)
    counts = ReduceSum <keepdims = 0> (shared, pair_axes)
"""
#: The same without types, for texts without repeated words: half of the off-diagonal pairs.
_WITHOUT_TYPES = """
    rows = Unsqueeze (is_word, two_axis)
    columns = Unsqueeze (is_word, one_axis)
    both = Mul (rows, columns)
    shared = Mul (same, both)
    all_pairs = ReduceSum <keepdims = 0> (shared, pair_axes)
    alone = ReduceSum <keepdims = 0> (is_word, one_axis)
    twice = Sub (all_pairs, alone)
    counts = Div (twice, two)
"""
_ENDS: dict[Output, tuple[str, str]] = {
    "one": ("[b, 1]", "logits = Unsqueeze (logit, one_axis)"),
    "flat": ("[b]", "logits = Identity (logit)"),
    "two": (
        "[b, 2]",
        "negative = Div (logit, minus_two)  positive = Div (logit, two)"
        "  no = Unsqueeze (negative, one_axis)  yes = Unsqueeze (positive, one_axis)"
        "  logits = Concat <axis = 1> (no, yes)",
    ),
    "probability": (
        "[b, 1]",
        "column = Unsqueeze (logit, one_axis)  logits = Sigmoid (column)",
    ),
    "three": (
        "[b, 3]",
        "column = Unsqueeze (logit, one_axis)  logits = Concat <axis = 1> (column, column, column)",
    ),
    "tokens": ("[b, n, n]", "logits = Identity (shared)"),
    "nan": (
        "[b, 1]",
        "none = Sqrt (minus_two)  wrong = Mul (logit, none)  logits = Unsqueeze (wrong, one_axis)",
    ),
    # fewer words than the tokenizer
    "small": (
        "[b, 1]",
        "weights = Gather (three_weights, input_ids)"
        "  logits = ReduceSum <keepdims = 1> (weights, one_axis)",
    ),
}


def cross_encoder(
    folder: Path,
    *,
    output: Output = "one",
    types: bool = True,
    words: Iterable[str] = (),
    config: dict[str, object] | None = None,
) -> Path:
    """Write the folder of the model, and return it.

    The vocabulary is `WORDS` and ``words``; other words are ignored.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(_graph(output, types=types))
    vocabulary = dict.fromkeys([*SPECIAL, *WORDS.split(), *(word.lower() for word in words)])
    (folder / "tokenizer.json").write_text(_tokenizer(list(vocabulary)))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def relevance(shared: int) -> float:
    """Return the score of a pair by its number of shared words."""
    return 1.0 / (1.0 + math.exp(3 - 2 * shared))


def _graph(output: Output, *, types: bool) -> bytes:
    import onnx.parser

    shape, end = _ENDS[output]
    third = ", int64[b, n] token_type_ids" if types else ""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    pairs (int64[b, n] input_ids, int64[b, n] attention_mask{third}) => (float{shape} logits)
    <
        int64 last_special = {{{len(SPECIAL) - 1}}}, int64[1] one_axis = {{1}},
        float[3] three_weights = {{1.0, 2.0, 3.0}}, int64[1] two_axis = {{2}},
        int64[2] pair_axes = {{1, 2}},
        float one = {{1.0}}, float two = {{2.0}}, float three = {{3.0}}, float minus_two = {{-2.0}}
    >
    {{
        known = Greater (input_ids, last_special)
        known_word = Cast <to = 1> (known)
        mask = Cast <to = 1> (attention_mask)
        is_word = Mul (known_word, mask)
        ids_down = Unsqueeze (input_ids, two_axis)
        ids_across = Unsqueeze (input_ids, one_axis)
        equal = Equal (ids_down, ids_across)
        same = Cast <to = 1> (equal)
        {_WITH_TYPES if types else _WITHOUT_TYPES}
        doubled = Mul (counts, two)
        logit = Sub (doubled, three)
        {end}
    }}
    """
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _tokenizer(vocabulary: list[str]) -> str:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    numbers = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation("removed"), pre_tokenizers.WhitespaceSplit()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, numbers[token]) for token in ("[CLS]", "[SEP]")],
    )
    text: str = tokenizer.to_str()
    return text
