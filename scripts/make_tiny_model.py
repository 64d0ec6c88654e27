"""Write a tiny random llama model (GGUF, under 1 MB) with a byte tokenizer and a chat template.

The tests serve it through the same code as a real model, without any download. Its text means
nothing, but it is deterministic: one seed gives one file, byte for byte, and greedy decoding gives
one text. Token ids: 0..255 are the bytes, then <|im_start|> (256), <|im_end|> (257, ends a turn)
and <|pad|> (258).

    python scripts/make_tiny_model.py PATH [--seed 7] [--context-length 65536]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]

WIDTH = 64  # of the residual stream; its first dimension is a constant, see `_biases`
HEADS = 4
LAYERS = 2
FEED_FORWARD = 128
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|pad|>")
VOCABULARY = 256 + len(SPECIAL)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tiny_model(path: Path, *, seed: int = 7, context_length: int = 65536) -> None:
    """Write the model to `path`, whole or not at all (a parallel reader sees no half file)."""
    partial = path.with_name(f".{path.name}.partial")
    writer = gguf.GGUFWriter(partial, "llama")
    _write_shape(writer, context_length)
    _write_tokenizer(writer)
    for name, values in _tensors(np.random.default_rng(seed)):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)


def _write_shape(writer: gguf.GGUFWriter, context_length: int) -> None:
    writer.add_name("tiny random llama")
    writer.add_context_length(context_length)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _write_tokenizer(writer: gguf.GGUFWriter) -> None:
    """Byte-level BPE; the one merge (the list may not be empty) is of bytes that no text has."""
    letters = _byte_letters()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*letters, *SPECIAL])
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    writer.add_token_types([normal] * 256 + [control] * len(SPECIAL))
    writer.add_token_merges([f"{letters[0xFE]} {letters[0xFF]}"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_pad_token_id(258)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _byte_letters() -> list[str]:
    """The 256 printable letters that stand for the bytes in byte-level BPE vocabularies.

    Bytes that print as themselves in Latin-1 keep their letter; the others get letters from
    U+0100 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def _tensors(random: np.random.Generator) -> Iterator[tuple[str, Matrix]]:
    def matrix(rows: int, columns: int, scale: float = 1.0) -> Matrix:
        values: Matrix = random.standard_normal((rows, columns)).astype(np.float32)
        return values * np.float32(scale / np.sqrt(columns))

    def into_residual(columns: int, scale: float) -> Matrix:
        values = matrix(WIDTH, columns, scale)
        values[0] = 0.0  # the constant dimension stays constant
        return values

    embedding = matrix(VOCABULARY, WIDTH, np.sqrt(WIDTH))
    embedding[:, 0] = 4.0
    yield "token_embd.weight", embedding
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", np.ones(WIDTH, np.float32)
        for part in ("q", "k", "v"):
            yield f"{block}attn_{part}.weight", matrix(WIDTH, WIDTH)
        yield f"{block}attn_output.weight", into_residual(WIDTH, 2.0)
        yield block + "ffn_norm.weight", np.ones(WIDTH, np.float32)
        yield block + "ffn_gate.weight", matrix(FEED_FORWARD, WIDTH)
        yield block + "ffn_up.weight", matrix(FEED_FORWARD, WIDTH)
        yield block + "ffn_down.weight", into_residual(FEED_FORWARD, 1.0)
    yield "output_norm.weight", np.ones(WIDTH, np.float32)
    output = matrix(VOCABULARY, WIDTH, 3.0)
    output[:, 0] = _biases()
    yield "output.weight", output


def _biases() -> Matrix:
    """Output weights of the constant dimension, so in effect a bias: prefer readable bytes.

    Without it three quarters of the bytes drawn would not be valid UTF-8, and turns would end at
    random. Stray bytes above 0x7F stay possible, at high temperature: they test the decoders.
    """
    values = np.full(VOCABULARY, -6.0, np.float32)
    values[0x20:0x7F] = 0.0
    values[ord("a") : ord("z") + 1] = 1.0
    values[ord(" ")] = 1.0
    values[256:] = -12.0
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--context-length", type=int, default=65536)
    arguments = parser.parse_args()
    write_tiny_model(arguments.path, seed=arguments.seed, context_length=arguments.context_length)
    print(arguments.path)


if __name__ == "__main__":
    main()
