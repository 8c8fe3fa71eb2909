"""Writes made-up models: the llama architecture with random weights, small or large, always the same for a seed.

They load and generate like real ones and say nonsense. Weights are Q4_0, so that the CPU backend repacks them, and
all dimensions are multiples of 256. No step holds more than one tensor in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from numpy.typing import NDArray

from tools.console import progress
from tools.fail import Fail

FORMAT = 1  # counts up when the same arguments come to mean another file

BLOCK = 32  # weights that share a scale
BLOCK_BYTES = 18  # a 16-bit scale and 32 weights of 4 bits

CONTROL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = ["▁", *map(chr, range(ord("!"), ord("~") + 1))]
WORDS = ["▁" + "".join(word) for word in itertools.product("bdfgklmnprstvz", "aeiou", ["", "n", "r", "s"])]
VOCABULARY = 512
SILENT = len(CONTROL) + len(BYTES) + len(LETTERS)  # tokens that are read, but never said


@dataclass(frozen=True)
class Shape:
    """Width of the model, of its feed-forward part, and its heads; `layers` of them make the size."""

    embedding: int
    feed_forward: int
    heads: int
    kv_heads: int
    layers: int = 0

    @property
    def kv(self) -> int:
        return self.embedding // self.heads * self.kv_heads

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and shape (rows, columns) of each tensor, in the order of the file. One dimension: a norm."""
        yield "token_embd.weight", (VOCABULARY, self.embedding)
        for layer in range(self.layers):
            yield from ((f"blk.{layer}.{name}.weight", shape) for name, shape in self.layer())
        yield "output_norm.weight", (self.embedding,)
        yield "output.weight", (VOCABULARY, self.embedding)

    def layer(self) -> list[tuple[str, tuple[int, ...]]]:
        return [
            ("attn_norm", (self.embedding,)),
            ("attn_q", (self.embedding, self.embedding)),
            ("attn_k", (self.kv, self.embedding)),
            ("attn_v", (self.kv, self.embedding)),
            ("attn_output", (self.embedding, self.embedding)),
            ("ffn_norm", (self.embedding,)),
            ("ffn_gate", (self.feed_forward, self.embedding)),
            ("ffn_up", (self.feed_forward, self.embedding)),
            ("ffn_down", (self.embedding, self.feed_forward)),
        ]


# From a toy to the shape of a 7B model. The widest that still gives a few layers is used.
SHAPES = (Shape(4096, 11008, 32, 8), Shape(1024, 3072, 16, 4), Shape(256, 768, 4, 2))
FEWEST_LAYERS = 4


def size_of(shape: tuple[int, ...]) -> int:
    """Bytes of a tensor: norms are 32-bit floats, all else is Q4_0."""
    return shape[0] * 4 if len(shape) == 1 else shape[0] * shape[1] // BLOCK * BLOCK_BYTES


def shape_for(megabytes: int) -> Shape:
    """The shape of a model of about so many megabytes (10**6 bytes). Raises Fail below 1."""
    if megabytes < 1:
        raise Fail(f"a synthetic model of {megabytes} MB cannot be made; 1 MB is the smallest")
    for shape in SHAPES:
        fixed = sum(size_of(tensor) for _, tensor in shape.tensors())
        layers = round((megabytes * 10**6 - fixed) / sum(size_of(tensor) for _, tensor in shape.layer()))
        if layers >= FEWEST_LAYERS:
            break
    return Shape(shape.embedding, shape.feed_forward, shape.heads, shape.kv_heads, max(layers, 1))


def write(file: Path, megabytes: int, *, seed: int = 0) -> None:
    """Write a model of about `megabytes` (10**6 bytes), to within one layer."""
    shape = shape_for(megabytes)
    writer = GGUFWriter(file, "llama")
    try:
        describe(writer, shape)
        add_vocabulary(writer)
        tensors = list(shape.tensors())
        for name, tensor in tensors:
            announce(writer, name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        random = np.random.default_rng(seed)
        with progress("writing a synthetic model", sum(size_of(tensor) for _, tensor in tensors)) as advance:
            for name, tensor in tensors:
                writer.write_tensor_data(weights(name, tensor, random))
                advance(size_of(tensor))
    finally:
        writer.close()


def describe(writer: GGUFWriter, shape: Shape) -> None:
    writer.add_name("synthetic")
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_0)
    writer.add_vocab_size(VOCABULARY)
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.embedding)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.embedding // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)


def add_vocabulary(writer: GGUFWriter) -> None:
    """A SentencePiece vocabulary: control tokens, all bytes, the ASCII characters, made-up words."""
    tokens = (CONTROL + BYTES + LETTERS + WORDS)[:VOCABULARY]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * len(BYTES)
    types += [TokenType.NORMAL] * (len(tokens) - len(types))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0 if kind != TokenType.NORMAL else -1.0 for kind in types])
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def announce(writer: GGUFWriter, name: str, tensor: tuple[int, ...]) -> None:
    if len(tensor) == 1:
        writer.add_tensor_info(name, tensor, np.dtype(np.float32), size_of(tensor))
        return
    in_bytes = (tensor[0], tensor[1] // BLOCK * BLOCK_BYTES)
    writer.add_tensor_info(name, in_bytes, np.dtype(np.uint8), size_of(tensor), GGMLQuantizationType.Q4_0)


def weights(name: str, tensor: tuple[int, ...], random: np.random.Generator) -> NDArray[np.float32] | NDArray[np.uint8]:
    """The values of a tensor: norms are 1; all else is random, of a scale that keeps activations in bounds."""
    if len(tensor) == 1:
        return np.ones(tensor, dtype=np.float32)
    rows, columns = tensor
    blocks = random.integers(0, 256, (rows, columns // BLOCK, BLOCK_BYTES), dtype=np.uint8)
    # A random 4-bit weight is -8..7 with a standard deviation of 4.6.
    scale = np.full(rows, 1 / (4.6 * columns**0.5), dtype="<f2")
    if name == "token_embd.weight":
        scale *= columns**0.5  # the last token matters most, else one word is said over and over
    if name == "output.weight":
        scale[:SILENT] = 0  # neither half a character nor the end of the text
    signs = blocks[:, :, 1] & 0x80  # random, too: they make up for -8..7 not being centred
    blocks[:, :, :2] = scale.view(np.uint8).reshape(rows, 1, 2)
    blocks[:, :, 1] |= signs
    return blocks.reshape(rows, -1)
