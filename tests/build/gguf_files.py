"""Kinds of GGUF files that the tests need beside a plain model: a split one, and a multimodal projector."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from tools import synthetic

EMBEDDING = 64
FEED_FORWARD = 128
LAYERS = 2
IMAGE, PATCH = 28, 14  # pixels


def write_split(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The synthetic model in several parts; the first comes first."""
    monkeypatch.setattr(synthetic, "GGUFWriter", functools.partial(GGUFWriter, split_max_tensors=40))
    synthetic.write(folder / "split.gguf", 8)
    return sorted(folder.glob("split-*.gguf"))


def write_projector(file: Path, model_embedding: int, *, seed: int = 0) -> None:
    """A vision encoder of two layers with a LLaVA projector to a model of this width; the weights are random."""
    random = np.random.default_rng(seed)
    writer = GGUFWriter(file, "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    for key, value in (
        ("embedding_length", EMBEDDING),
        ("feed_forward_length", FEED_FORWARD),
        ("block_count", LAYERS),
        ("attention.head_count", 4),
        ("projection_dim", model_embedding),
        ("image_size", IMAGE),
        ("patch_size", PATCH),
    ):
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])

    def add(name: str, *shape: int) -> None:
        scale = 0.1 if len(shape) > 1 else 0.02
        values = random.normal(1 if "ln" in name and name.endswith("weight") else 0, scale, shape)
        writer.add_tensor(name, values.astype(np.float32))

    add("v.patch_embd.weight", EMBEDDING, 3, PATCH, PATCH)
    add("v.position_embd.weight", (IMAGE // PATCH) ** 2, EMBEDDING)
    for layer in range(LAYERS):
        blk = f"v.blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add(f"{blk}.{name}.weight", EMBEDDING, EMBEDDING)
            add(f"{blk}.{name}.bias", EMBEDDING)
        for name in ("ln1", "ln2"):
            add(f"{blk}.{name}.weight", EMBEDDING)
            add(f"{blk}.{name}.bias", EMBEDDING)
        add(f"{blk}.ffn_up.weight", FEED_FORWARD, EMBEDDING)
        add(f"{blk}.ffn_down.weight", EMBEDDING, FEED_FORWARD)
    add("mm.0.weight", model_embedding, EMBEDDING)
    add("mm.0.bias", model_embedding)
    add("mm.2.weight", model_embedding, model_embedding)
    add("mm.2.bias", model_embedding)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
