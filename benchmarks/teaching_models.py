"""Models of teaching repositories beside configs of ours: the same weights, the same inputs, the largest difference.

    python benchmarks/teaching_models.py FOLDER

FOLDER holds the repositories, each in a folder with its name: annotated-transformer, pytorch-transformer (hkproj),
attention-is-all-you-need-pytorch (jadore801120), Transformer (SamLynnEvans), BERT-pytorch (codertimo), former (pbloem),
LLMs-from-scratch (rasbt), and the packages labml_nn, vit_pytorch and d2l as their wheels unpack. What is not there is
left out. Of each file only the classes and functions are taken, so that nothing they import has to be installed.
"""

import argparse
import ast
import collections
import copy
import json
import math
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import einops
import numpy as np
import torch
from einops.layers.torch import Rearrange
from litgpt_configs import NothingBelowFloat64
from torch import Tensor, nn
from torch.nn import functional as F

import headwork as hw
from headwork import choices
from headwork.hub.names import Names, OneLess, SideBySide, Table
from headwork.models import DecoderConfig, EncoderConfig, EncoderDecoderConfig, VisionTransformerConfig

D, HEADS, LAYERS, VOCAB, TARGET = 24, 3, 2, 31, 29
N_SOURCE, N_TARGET = 11, 7
ATTENTION = ("query", "key", "value", "out")
Case = Callable[[Path], float]
CASES: dict[str, Case] = {}


def definitions(*files: Path, only: set[str] | None = None) -> dict[str, Any]:
    """The classes and functions of these files, in a name space with what they usually import."""
    found: dict[str, Any] = {
        **{name: getattr(typing, name) for name in ("Any", "Optional", "List", "Tuple", "Dict", "Union", "Callable")},
        **{"torch": torch, "nn": nn, "F": F, "math": math, "copy": copy, "np": np, "Tensor": Tensor},
        **{"Module": nn.Module, "ModuleList": nn.ModuleList, "Variable": lambda t, **_: t, "namedtuple": collections},
        **{"rearrange": einops.rearrange, "repeat": einops.repeat, "Rearrange": Rearrange},
        **{"log_softmax": F.log_softmax, "device": "cpu", "d": lambda tensor=None: "cpu", "Path": Path},
        "tracker": types.SimpleNamespace(debug=lambda *_: None),
        "clone_module_list": lambda module, n: nn.ModuleList([copy.deepcopy(module) for _ in range(n)]),
    }
    for file in files:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".ipynb":
            cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
            lines = [line for cell in cells for line in "".join(cell).splitlines()]
            text = "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))
        for node in ast.parse(text).body:
            wanted = isinstance(node, ast.ClassDef | ast.FunctionDef) and (only is None or node.name in only)
            if wanted and not node.name.startswith(("_test", "test_")):
                node.decorator_list = []
                try:
                    exec(compile(ast.Module([node], []), str(file), "exec"), found)
                except (NameError, AttributeError):  # it inherits from what is not here, and is not needed
                    continue
    return found


def case(name: str) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        CASES[name] = function
        return function

    return keep


def fill(model: nn.Module) -> Any:
    """In evaluation and float64, with no number left at its beginning."""
    model.double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, dtype=torch.float64))
    return model


def same_weights(ours: nn.Module, theirs: nn.Module | dict[str, Tensor], table: Table) -> Any:
    """Ours with the weights of theirs: every tensor of ours gets one."""
    state, wanted = dict(theirs if isinstance(theirs, dict) else theirs.state_dict()), ours.double().eval().state_dict()
    read = {}
    for match in Names(table).matches(wanted):
        made = match.rule.read([state[name] for name in match.theirs], [wanted[name] for name in match.ours])
        read |= dict(zip(match.ours, made, strict=True))
    ours.load_state_dict(read)
    return ours


def difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return (ours - theirs).abs().max().item()


def ids(n: int, vocab: int = VOCAB) -> Tensor:
    return torch.randint(1, vocab, (2, n))


def parts(theirs: str, ours: str, names: tuple[str, ...], mine: tuple[str, ...] = ATTENTION) -> Table:
    return {f"{theirs}{name}": f"{ours}.{part}" for name, part in zip(names, mine, strict=True)}


def norm(theirs: str, ours: str, weight: str = "a_2", bias: str = "b_2") -> Table:
    return {f"{theirs}.{weight}": f"{ours}.weight", f"{theirs}.{bias}": f"{ours}.bias"}


# --- encoder-decoders ------------------------------------------------------------------------------------------------


def translator(**changes: Any) -> hw.models.EncoderDecoder:
    settings: dict[str, Any] = {
        "vocab": VOCAB,
        "target_vocab": TARGET,
        "d_model": D,
        "n_encoder_layers": LAYERS,
        "n_decoder_layers": LAYERS,
        "heads": choices.Heads(n_heads=HEADS),
        "feed_forward": choices.FeedForward(d_ff=32, activation="relu"),
        "norm": choices.UnbiasedLayerNorm(eps=1e-6),
        "norm_order": "pre",
        "lm_head": choices.UntiedLMHead(bias=True),
    }
    return EncoderDecoderConfig(**settings | changes).build()


@case("annotated-transformer make_model")
def annotated(folder: Path) -> float:
    ns = definitions(folder / "annotated-transformer" / "the_annotated_transformer.py")
    theirs = fill(ns["make_model"](VOCAB, TARGET, N=LAYERS, d_model=D, d_ff=32, h=HEADS))
    table: dict[Any, Any] = {
        "src_embed.0.lut.weight": "embedding.table",
        "tgt_embed.0.lut.weight": "target_embedding.table",
        "generator.proj": "lm_head",
        **norm("encoder.norm", "encoder_layers.final_norm"),
        **norm("decoder.norm", "decoder_layers.final_norm"),
    }
    for side, inside in (("encoder", ("attention",)), ("decoder", ("attention", "cross_attention"))):
        layer, ours = f"{side}.layers.{{i}}", f"{side}_layers.{{i}}"
        for n, part in enumerate(inside):
            name = ("self_attn", "src_attn")[n]
            table |= parts(f"{layer}.{name}.linears.", f"{ours}.{part}", ("0", "1", "2", "3"))
            table |= norm(f"{layer}.sublayer.{n}.norm", f"{ours}.{part}_norm")
        table |= norm(f"{layer}.sublayer.{len(inside)}.norm", f"{ours}.feed_forward_norm")
        table |= parts(f"{layer}.feed_forward.", f"{ours}.feed_forward", ("w_1", "w_2"), ("up", "down"))
    ours = same_weights(translator(), theirs, table)
    source, target = ids(N_SOURCE), ids(N_TARGET, TARGET)
    expected = theirs.generator(theirs(source, target, torch.ones(2, 1, N_SOURCE), ns["subsequent_mask"](N_TARGET)))
    return difference(ours(source, target).log_softmax(-1), expected)


@case("hkproj/pytorch-transformer")
def hkproj(folder: Path) -> float:
    ns = definitions(folder / "pytorch-transformer" / "model.py")
    theirs = fill(ns["build_transformer"](VOCAB, TARGET, 50, 50, D, LAYERS, HEADS, 0.1, 32))
    table: dict[Any, Any] = {
        "src_embed.embedding.weight": "embedding.table",
        "tgt_embed.embedding.weight": "target_embedding.table",
        "projection_layer.proj": "lm_head",
    }
    for side, inside in (("encoder", ("attention",)), ("decoder", ("attention", "cross_attention"))):
        layer, ours = f"{side}.layers.{{i}}", f"{side}_layers.{{i}}"
        table |= norm(f"{side}.norm", f"{side}_layers.final_norm", "alpha", "bias")
        for n, part in enumerate(inside):
            name = ("self_attention_block", "cross_attention_block")[n]
            table |= parts(f"{layer}.{name}.w_", f"{ours}.{part}", ("q", "k", "v", "o"))
            table |= norm(f"{layer}.residual_connections.{n}.norm", f"{ours}.{part}_norm", "alpha", "bias")
        table |= norm(f"{layer}.residual_connections.{len(inside)}.norm", f"{ours}.feed_forward_norm", "alpha", "bias")
        table |= parts(f"{layer}.feed_forward_block.", f"{ours}.feed_forward", ("linear_1", "linear_2"), ("up", "down"))
    ours = same_weights(translator(heads=choices.Heads(n_heads=HEADS, bias=False)), theirs, table)
    source, target = ids(N_SOURCE), ids(N_TARGET, TARGET)
    memory = theirs.encode(source, torch.ones(2, 1, 1, N_SOURCE))
    hidden = theirs.decode(memory, torch.ones(2, 1, 1, N_SOURCE), target, hw.masks.causal(N_TARGET)[None])
    return difference(ours(source, target), theirs.project(hidden))


@case("jadore801120 Transformer")
def jadore(folder: Path) -> float:
    where = folder / "attention-is-all-you-need-pytorch" / "transformer"
    ns = definitions(*(where / f"{name}.py" for name in ("Modules", "SubLayers", "Layers", "Models")))
    theirs = fill(
        ns["Transformer"](
            VOCAB, VOCAB, 0, 0, d_word_vec=D, d_model=D, d_inner=32, n_layers=LAYERS, n_head=HEADS, d_k=8, d_v=8
        )
    )
    table: dict[Any, Any] = {"decoder.trg_word_emb.weight": "embedding.table"}
    for side, names in (("encoder", ("slf_attn",)), ("decoder", ("slf_attn", "enc_attn"))):
        layer, ours = f"{side}.layer_stack.{{i}}", f"{side}_layers.{{i}}"
        table[f"{side}.layer_norm"] = f"{side}_layers.embedding_norm"
        for name, part in zip(names, ("attention", "cross_attention"), strict=False):
            table |= parts(f"{layer}.{name}.", f"{ours}.{part}", ("w_qs", "w_ks", "w_vs", "fc"))
            table[f"{layer}.{name}.layer_norm"] = f"{ours}.{part}_norm"
        table |= parts(f"{layer}.pos_ffn.", f"{ours}.feed_forward", ("w_1", "w_2"), ("up", "down"))
        table[f"{layer}.pos_ffn.layer_norm"] = f"{ours}.feed_forward_norm"
        exact = hw.functional.sinusoidal_positions(200, D)[None]  # theirs is rounded to float32
        getattr(theirs, side).position_enc.pos_table = exact.double()
    model = translator(
        target_vocab=None,
        heads=choices.Heads(n_heads=HEADS, bias=False),
        norm=choices.LayerNorm(eps=1e-6),
        norm_order="post",
        embedding_norm=True,
        scaled_embedding=False,
        lm_head=choices.TiedLMHead(scaled=True),
    )
    ours = same_weights(model, theirs, table)
    source, target = ids(N_SOURCE), ids(N_TARGET)
    return difference(ours(source, target).flatten(0, 1), theirs(source, target))


@case("SamLynnEvans/Transformer")
def samlynn(folder: Path) -> float:
    where = folder / "Transformer"
    ns = definitions(*(where / f"{name}.py" for name in ("Sublayers", "Layers", "Embed", "Models")))
    theirs = fill(ns["Transformer"](VOCAB, TARGET, D, LAYERS, HEADS, 0.1))
    state = theirs.state_dict()
    table: dict[Any, Any] = {
        "encoder.embed.embed.weight": "embedding.table",
        "decoder.embed.embed.weight": "target_embedding.table",
        "out": "lm_head",
    }
    for side, inside in (("encoder", ("attention",)), ("decoder", ("attention", "cross_attention"))):
        layer, ours = f"{side}.layers.{{i}}", f"{side}_layers.{{i}}"
        state[f"{side}.table"] = state[f"{side}.pe.pe"][0]
        table[f"{side}.table"] = f"{side}_layers.positions.table"
        table |= norm(f"{side}.norm", f"{side}_layers.final_norm", "alpha", "bias")
        for n, part in enumerate(inside):
            name = "attn" if side == "encoder" else f"attn_{n + 1}"
            table |= parts(f"{layer}.{name}.", f"{ours}.{part}", ("q_linear", "k_linear", "v_linear", "out"))
            table |= norm(f"{layer}.norm_{n + 1}", f"{ours}.{part}_norm", "alpha", "bias")
        table |= norm(f"{layer}.norm_{len(inside) + 1}", f"{ours}.feed_forward_norm", "alpha", "bias")
        table |= parts(f"{layer}.ff.", f"{ours}.feed_forward", ("linear_1", "linear_2"), ("up", "down"))
    model = translator(
        feed_forward=choices.FeedForward(d_ff=2048, activation="relu"),
        position=choices.LearnedPositions(max_tokens=200),
    )
    ours = same_weights(model, state, table)
    source, target = ids(N_SOURCE), ids(N_TARGET, TARGET)
    causal = hw.masks.causal(N_TARGET)[None]
    return difference(ours(source, target), theirs(source, target, torch.ones(2, 1, N_SOURCE), causal))


# --- encoders --------------------------------------------------------------------------------------------------------


@case("codertimo/BERT-pytorch BERT")
def codertimo(folder: Path) -> float:
    where = folder / "BERT-pytorch" / "bert_pytorch" / "model"
    files = ["utils/gelu", "utils/layer_norm", "utils/sublayer", "utils/feed_forward", "attention/single"]
    files += ["attention/multi_head", "embedding/token", "embedding/position", "embedding/segment", "embedding/bert"]
    ns = definitions(*(where / f"{name}.py" for name in (*files, "transformer", "bert")))
    theirs = fill(ns["BERT"](VOCAB, hidden=D, n_layers=LAYERS, attn_heads=HEADS))
    layer, ours = "transformer_blocks.{i}", "layers.{i}"
    table: dict[Any, Any] = {
        "embedding.token.weight": "embedding.table",
        "embedding.segment.weight": "segments.table",
        **parts(f"{layer}.attention.linear_layers.", f"{ours}.attention", ("0", "1", "2"), ATTENTION[:3]),
        f"{layer}.attention.output_linear": f"{ours}.attention.out",
        **norm(f"{layer}.input_sublayer.norm", f"{ours}.attention_norm"),
        **norm(f"{layer}.output_sublayer.norm", f"{ours}.feed_forward_norm"),
        **parts(f"{layer}.feed_forward.", f"{ours}.feed_forward", ("w_1", "w_2"), ("up", "down")),
    }
    config = EncoderConfig(
        vocab=VOCAB,
        head=choices.NoHead(),
        d_model=D,
        n_layers=LAYERS,
        heads=choices.Heads(n_heads=HEADS),
        feed_forward=choices.FeedForward(d_ff=4 * D, activation="gelu_tanh"),
        norm=choices.UnbiasedLayerNorm(eps=1e-6),
        norm_order="pre",
        final_norm=False,
        position=choices.SinusoidalPositions(),
        n_segments=3,
    )
    mine, tokens, segments = (
        same_weights(config.build(), theirs, table),
        ids(N_SOURCE),
        torch.randint(0, 3, (2, N_SOURCE)),
    )
    return difference(mine(tokens, segments=segments), theirs(tokens, segments))


def former(folder: Path) -> dict[str, Any]:
    return definitions(*(folder / "former" / "former" / f"{name}.py" for name in ("modules", "transformers")))


def pooled_former(folder: Path, pooling: choices.TextPooling) -> float:
    most = isinstance(pooling, choices.MaxPooling)
    theirs = fill(former(folder)["CTransformer"](D, HEADS, LAYERS, 20, VOCAB, 5, max_pool=most))
    layer, ours = "tblocks.{i}", "layers.{i}"
    table: dict[Any, Any] = {
        "token_embedding.weight": "embedding.table",
        "pos_embedding.weight": "layers.positions.table",
        **parts(f"{layer}.attention.", f"{ours}.attention", ("toqueries", "tokeys", "tovalues", "unifyheads")),
        **parts(f"{layer}.", ours, ("norm1", "norm2"), ("attention_norm", "feed_forward_norm")),
        **parts(f"{layer}.ff.", f"{ours}.feed_forward", ("0", "2"), ("up", "down")),
        "toprobs": "head.classifier",
    }
    config = EncoderConfig(
        vocab=VOCAB,
        head=choices.ClassificationHead(n_classes=5, pooling=pooling, activation=None),
        d_model=D,
        n_layers=LAYERS,
        heads=choices.Heads(n_heads=HEADS, bias=False, out_bias=True),
        feed_forward=choices.FeedForward(d_ff=4 * D, activation="relu"),
        norm=choices.LayerNorm(),
        embedding_norm=False,
        position=choices.LearnedPositions(max_tokens=20),
        n_segments=0,
    )
    mine, tokens = same_weights(config.build(), theirs, table), ids(N_SOURCE)
    return difference(mine(tokens).log_softmax(-1), theirs(tokens))


CASES["pbloem/former CTransformer (max pooling)"] = lambda folder: pooled_former(folder, choices.MaxPooling())
CASES["pbloem/former CTransformer (mean pooling)"] = lambda folder: pooled_former(folder, choices.MeanPooling())


# --- attention alone -------------------------------------------------------------------------------------------------


@case("pbloem/former SelfAttention (kqnorm)")
def kqnorm(folder: Path) -> float:
    theirs, x = fill(former(folder)["SelfAttention"](D, HEADS, kqnorm=True)), torch.randn(2, N_SOURCE, D)
    names = ("toqueries", "tokeys", "tovalues", "unifyheads", "qln", "kln")
    table = dict(zip(names, (*ATTENTION, "query_norm", "key_norm"), strict=True))
    norms = choices.QKNorm(norm=choices.LayerNorm())
    ours = hw.layers.MultiHeadAttention(D, HEADS, bias=False, out_bias=True, qk_norm=norms)
    return difference(same_weights(ours, theirs, table)(x), theirs(x))


def labml(folder: Path, *more: str) -> dict[str, Any]:
    where = folder / "labml_nn" / "labml_nn" / "transformers"
    return definitions(*(where / name for name in ("mha.py", *more)))


LABML = {**{f"{part}.linear": part for part in ATTENTION[:3]}, "output": "out"}


@case("labml-nn RoPE attention, half of the features")
def rope(folder: Path) -> float:
    theirs = fill(labml(folder, "rope/__init__.py")["RotaryPEMultiHeadAttention"](HEADS, D))
    ours = same_weights(hw.layers.MultiHeadAttention(D, HEADS), theirs, LABML)
    x = torch.randn(N_SOURCE, 2, D)
    rotation = hw.layers.RotaryPositions(D // HEADS, fraction=0.5).rotation(torch.arange(N_SOURCE)[None])
    return difference(ours(x.transpose(0, 1), rotation=rotation), theirs(query=x, key=x, value=x).transpose(0, 1))


@case("labml-nn RelativeMultiHeadAttention (XL)")
def relative(folder: Path) -> float:
    theirs = fill(labml(folder, "xl/relative_mha.py")["RelativeMultiHeadAttention"](HEADS, D))
    state, far = theirs.state_dict(), N_SOURCE
    near = slice(theirs.P - far, theirs.P + far + 1)  # it has codes for shifts up to 4096
    state["codes"] = state["key_pos_embeddings"][near].transpose(0, 1)
    state["biases"] = state["key_pos_bias"][near].T
    state |= {f"{part}.linear.bias": torch.zeros(D) for part in ("query", "key")}  # only its values have one
    codes = hw.layers.LearnedShifts(HEADS, D // HEADS, max_distance=far, biases=True)
    ours = hw.layers.MultiHeadAttention(D, HEADS, relative=codes)
    table = {
        **LABML,
        "codes": "relative.table",
        "biases": "relative.shift_bias",
        "query_pos_bias": "relative.query_bias",
    }
    x, causal = torch.randn(N_SOURCE, 2, D), hw.masks.causal(N_SOURCE)
    expected = theirs(query=x, key=x, value=x, mask=causal[:, :, None])
    return difference(same_weights(ours, state, table)(x.transpose(0, 1), causal=True), expected.transpose(0, 1))


@case("d2l AdditiveAttention (Bahdanau)")
def additive(folder: Path) -> float:
    ns = definitions(folder / "d2l" / "d2l" / "torch.py", only={"AdditiveAttention", "masked_softmax"})
    theirs = ns["AdditiveAttention"](8, 0.1)
    q, k, v, valid = torch.randn(2, 1, 6), torch.randn(2, 10, 5), torch.randn(2, 10, 4), torch.tensor([2, 6])
    theirs(q, k, v, valid)  # its widths are found at the first call
    theirs, ours = fill(theirs), hw.layers.AdditiveAttention(6, 5, 8).double().eval()
    state = theirs.state_dict()
    weights = {"query.weight": state["W_q.weight"], "key.weight": state["W_k.weight"], "score": state["w_v.weight"][0]}
    ours.load_state_dict(weights)
    return difference(ours(q, k, v, hw.masks.padding(valid, 10)[:, 0]), theirs(q, k, v, valid))


# --- images ----------------------------------------------------------------------------------------------------------


def vit(folder: Path, name: str) -> tuple[Any, dict[str, Tensor], dict[Any, Any]]:
    ns = definitions(folder / "vit_pytorch" / "vit_pytorch" / f"{'vit' if name == 'ViT' else 'simple_vit'}.py")
    theirs = fill(
        ns[name](image_size=12, patch_size=4, num_classes=5, dim=D, depth=LAYERS, heads=HEADS, mlp_dim=32, dim_head=10)
    )
    state = theirs.state_dict()
    first = "to_patch_embedding"
    for key in ("1.weight", "1.bias", "2.weight"):  # (row column channel) there, (channel row column) here
        pixels = state[f"{first}.{key}"].reshape(-1, 4, 4, 3).movedim(3, 1)
        state[f"{first}.{key}"] = pixels if key == "2.weight" else pixels.flatten()
    layer, ours = "transformer.layers.{i}", "layers.{i}"
    table: dict[Any, Any] = {
        **parts(f"{first}.", "patches", ("1", "3"), ("pixel_norm", "norm")),
        f"{first}.2.weight": "patches.weight",
        f"{first}.2.bias": "patches.bias",
        f"{layer}.0.norm": f"{ours}.attention_norm",
        f"{layer}.0.to_qkv": SideBySide(tuple(f"{ours}.attention.{part}" for part in ATTENTION[:3])),
        f"{layer}.1.net.0": f"{ours}.feed_forward_norm",
        "transformer.norm": "layers.final_norm",
        "positions": "positions.table",
    }
    return theirs, state, table


def image_config(**changes: Any) -> VisionTransformerConfig:
    settings: dict[str, Any] = {
        "n_classes": 5,
        "image": (12, 12),
        "patch": (4, 4),
        "d_model": D,
        "n_layers": LAYERS,
        "heads": choices.Heads(n_heads=HEADS, d_head=10, d_value=10, bias=False, out_bias=True),
        "feed_forward": choices.FeedForward(d_ff=32),
        "norm": choices.LayerNorm(),
        "embedding": choices.LinearPatches(norm=True),
    }
    return VisionTransformerConfig(**settings | changes)


@case("vit-pytorch ViT")
def vit_pytorch(folder: Path) -> float:
    theirs, state, table = vit(folder, "ViT")
    state["class"] = state["cls_token"][0] + state["pos_embedding"][0]
    state["positions"] = state["pos_embedding"][1:].reshape(3, 3, D)
    table |= {"class": "pooling.class_token", "mlp_head": "classifier"}
    table |= parts("transformer.layers.{i}.1.net.", "layers.{i}.feed_forward", ("1", "4"), ("up", "down"))
    table["transformer.layers.{i}.0.to_out.0"] = "layers.{i}.attention.out"
    image = torch.randn(2, 3, 12, 12)
    return difference(same_weights(image_config().build(), state, table)(image), theirs(image))


@case("vit-pytorch SimpleViT")
def simple_vit(folder: Path) -> float:
    theirs, state, table = vit(folder, "SimpleViT")
    state["positions"] = theirs.pos_embedding.double().reshape(3, 3, D)
    table |= {"linear_head": "classifier", "transformer.layers.{i}.0.to_out": "layers.{i}.attention.out"}
    table |= parts("transformer.layers.{i}.1.net.", "layers.{i}.feed_forward", ("1", "3"), ("up", "down"))
    heads = choices.Heads(n_heads=HEADS, d_head=10, d_value=10, bias=False)
    image = torch.randn(2, 3, 12, 12)
    config = image_config(heads=heads, pooling=choices.MeanPooling())
    return difference(same_weights(config.build(), state, table)(image), theirs(image))


@case("labml-nn VisionTransformer")
def labml_vit(folder: Path) -> float:
    ns = labml(folder, "feed_forward.py", "models.py", "vit/__init__.py")
    attention, feed = ns["MultiHeadAttention"](HEADS, D), ns["FeedForward"](D, 32, activation=nn.GELU())
    layer = ns["TransformerLayer"](d_model=D, self_attn=attention, feed_forward=feed, dropout_prob=0.1)
    patches, where = ns["PatchEmbeddings"](D, 4, 3), ns["LearnedPositionalEmbeddings"](D, 20)
    theirs = fill(ns["VisionTransformer"](layer, LAYERS, patches, where, ns["ClassificationHead"](D, 17, 5)))
    state, ours = theirs.state_dict(), "layers.{i}"
    table_of_positions = state["pos_emb.positional_encodings"][:, 0]
    state["class"] = state["cls_token_emb"][0, 0] + table_of_positions[0]
    state["positions"] = table_of_positions[1:10].reshape(3, 3, D)
    one = "transformer_layers.{i}"
    table: dict[Any, Any] = {
        "patch_emb.conv": "patches",
        "class": "pooling.class_token",
        "positions": "positions.table",
        **{f"{one}.self_attn.{their}": f"{ours}.attention.{our}" for their, our in LABML.items()},
        **parts(f"{one}.feed_forward.", f"{ours}.feed_forward", ("layer1", "layer2"), ("up", "down")),
        **parts(f"{one}.", ours, ("norm_self_attn", "norm_ff"), ("attention_norm", "feed_forward_norm")),
        "ln": "layers.final_norm",
        **parts("classification.", "classifier", ("linear1", "linear2"), ("dense", "classifier")),
    }
    config = image_config(
        heads=choices.Heads(n_heads=HEADS),
        embedding=choices.LinearPatches(),
        head=choices.MLPHead(d_hidden=17, activation="relu"),
    )
    image = torch.randn(2, 3, 12, 12)
    return difference(same_weights(config.build(), state, table)(image), theirs(image))


# --- decoders of LLMs-from-scratch -----------------------------------------------------------------------------------

RASBT: dict[str, Any] = {
    **{"vocab_size": VOCAB, "context_length": 32, "emb_dim": D, "n_heads": 6, "n_layers": 3, "hidden_dim": 32},
    **{"n_kv_groups": 2, "n_kv_heads": 2, "head_dim": 6, "dtype": torch.float64, "rope_base": 500.0, "qk_norm": True},
    **{"drop_rate": 0.0, "qkv_bias": False, "sliding_window": 4, "attention_bias": False, "rms_norm_eps": 1e-6},
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
LOCAL = (0, 2)


def rasbt(folder: Path, *path: str) -> dict[str, Any]:
    return definitions(folder.joinpath("LLMs-from-scratch", *path))


def decoder(**changes: Any) -> hw.models.Decoder:
    settings: dict[str, Any] = {
        "vocab": VOCAB,
        "d_model": D,
        "n_layers": 3,
        "heads": choices.Heads(n_heads=6, n_kv_heads=2, d_head=6, d_value=6, bias=False),
        "feed_forward": choices.GatedFeedForward(d_ff=32),
        "norm": choices.RMSNorm(eps=1e-6),
        "position": choices.RotaryPositions(base=500.0),
        "lm_head": choices.UntiedLMHead(),
    }
    return DecoderConfig(**settings | changes).build()


def rasbt_table(block: str, norms: dict[str, str], *, weight: str = "scale", rule: Any = str) -> Table:
    """Embedding, attention, gated network and head, which are the same in all of them."""
    one, ours = f"{block}.{{i}}", "layers.{i}"
    gated = parts(f"{one}.ff.", f"{ours}.feed_forward", ("fc1", "fc2", "fc3"), ("gate", "up", "down"))
    return {
        "tok_emb.weight": "embedding.table",
        "out_head": "lm_head",
        **parts(f"{one}.att.", f"{ours}.attention", ("W_query", "W_key", "W_value", "out_proj")),
        **gated,
        **{f"{one}.{their}.{weight}": rule(f"{ours}.{our}.weight") for their, our in norms.items()},
        f"final_norm.{weight}": rule("layers.final_norm.weight"),
    }


QK = {"att.q_norm": "attention.query_norm", "att.k_norm": "attention.key_norm"}


def run_decoder(ours: hw.models.Decoder, theirs: Any, table: Table) -> float:
    mine, tokens = same_weights(ours, theirs, table), ids(N_SOURCE)
    return difference(mine(tokens), theirs(tokens))


@case("rasbt Llama 3.2 (scaled frequencies)")
def llama(folder: Path) -> float:
    scaled = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_context_length": 16}
    theirs = fill(rasbt(folder, "pkg/llms_from_scratch/llama3.py")["Llama3Model"](RASBT | {"rope_freq": scaled}))
    table = rasbt_table("trf_blocks", {"norm1": "attention_norm", "norm2": "feed_forward_norm"}, weight="weight")
    scaling = choices.Llama3Scaling(factor=8.0, original_max_tokens=16)
    heads = choices.Heads(n_heads=6, n_kv_heads=2, bias=False)
    position = choices.RotaryPositions(base=500.0, scaling=scaling)
    return run_decoder(decoder(heads=heads, norm=choices.RMSNorm(eps=1e-5), position=position), theirs, table)


def qwen_heads(**changes: Any) -> choices.Heads:
    settings = {"n_heads": 6, "n_kv_heads": 2, "d_head": 6, "d_value": 6, "bias": False, "qk_norm": choices.QKNorm()}
    return choices.Heads(**settings | changes)


@case("rasbt Qwen3Model (QK-norm)")
def qwen(folder: Path) -> float:
    theirs = fill(rasbt(folder, "pkg/llms_from_scratch/qwen3.py")["Qwen3Model"](RASBT))
    table = rasbt_table("trf_blocks", {"norm1": "attention_norm", "norm2": "feed_forward_norm", **QK})
    return run_decoder(decoder(heads=qwen_heads()), theirs, table)


@case("rasbt Gemma 3")
def gemma(folder: Path) -> float:
    cfg = RASBT | {"rope_local_base": 100.0, "query_pre_attn_scalar": 7}
    theirs = fill(rasbt(folder, "ch05/12_gemma3/standalone-gemma3.ipynb")["Gemma3Model"](cfg))
    norms = {
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "attention_out_norm",
        "pre_feedforward_layernorm": "feed_forward_norm",
        "post_feedforward_layernorm": "feed_forward_out_norm",
    }
    ours = decoder(
        heads=qwen_heads(beta=7**-0.5),
        feed_forward=choices.GatedFeedForward(d_ff=32, activation="gelu_tanh"),
        layer=choices.SandwichLayer(),
        window=choices.SlidingWindow(n_tokens=4, layers=LOCAL, position=choices.RotaryPositions(base=100.0)),
        scaled_embedding=True,
    )
    return run_decoder(ours, theirs, rasbt_table("blocks", norms | QK, rule=OneLess))


@case("rasbt Olmo 3")
def olmo(folder: Path) -> float:
    yarn = {"rope_type": "yarn", "rope_factor": 4.0, "rope_orig_max": 8, "rope_attention_factor": 1.2}
    theirs = fill(rasbt(folder, "ch05/13_olmo3/standalone-olmo3.ipynb")["Olmo3Model"](RASBT | yarn))
    norms = {"post_attention_layernorm": "attention_norm", "post_feedforward_layernorm": "feed_forward_norm"}
    scaling = choices.YarnScaling(factor=4.0, original_max_tokens=8, attention_factor=1.2)
    ours = decoder(
        heads=qwen_heads(qk_norm=choices.QKNorm(per_head=False)),
        layer=choices.BranchNormLayer(),
        position=choices.RotaryPositions(base=500.0, scaling=scaling),
        window=choices.SlidingWindow(n_tokens=4, layers=LOCAL),
    )
    return run_decoder(ours, theirs, rasbt_table("blocks", norms | QK, weight="weight"))


@case("rasbt tiny-aya")
def aya(folder: Path) -> float:
    """Layers without a window have no positions."""
    cfg = RASBT | {"layer_norm_eps": 1e-5, "logit_scale": 1.0, "tie_word_embeddings": True, "attention_dropout": 0.0}
    theirs = fill(rasbt(folder, "ch05/15_tiny-aya/standalone-tiny-aya.ipynb")["TinyAyaModel"](cfg))
    rotary = choices.RotaryPositions(base=500.0, layout="interleaved")
    ours = decoder(
        norm=choices.LayerNorm(bias=False),
        layer=choices.ParallelLayer(shared_norm=True),
        position=choices.NoPositions(),
        window=choices.SlidingWindow(n_tokens=4, layers=LOCAL, position=rotary),
        lm_head=choices.TiedLMHead(),
    )
    return run_decoder(ours, theirs, rasbt_table("trf_blocks", {"input_layernorm": "attention_norm"}, weight="weight"))


def gpt_table(weight: str = "scale", bias: str = "shift") -> dict[Any, Any]:
    one, ours = "trf_blocks.{i}", "layers.{i}"
    return {
        "tok_emb.weight": "embedding.table",
        "pos_emb.weight": "layers.positions.table",
        "out_head": "lm_head",
        **parts(f"{one}.att.", f"{ours}.attention", ("W_query", "W_key", "W_value", "out_proj")),
        **norm(f"{one}.norm1", f"{ours}.attention_norm", weight, bias),
        **norm(f"{one}.norm2", f"{ours}.feed_forward_norm", weight, bias),
        **norm("final_norm", "layers.final_norm", weight, bias),
    }


GPT: dict[str, Any] = {
    "heads": choices.Heads(n_heads=6, bias=False, out_bias=True),
    "norm": choices.LayerNorm(),
    "position": choices.LearnedPositions(max_tokens=32),
}


@case("rasbt ch04 GPT with sliding window")
def window(folder: Path) -> float:
    cfg = RASBT | {"sliding_window_size": 4, "sliding_window_stride": 2}
    theirs = fill(rasbt(folder, "ch04/06_swa/gpt_with_kv_swa.py")["GPTModel"](cfg))
    table = gpt_table() | parts("trf_blocks.{i}.ff.layers.", "layers.{i}.feed_forward", ("0", "2"), ("up", "down"))
    feed_forward = choices.FeedForward(d_ff=4 * D, activation="gelu_tanh")
    window = choices.SlidingWindow(n_tokens=4, layers=(0, 1))
    return run_decoder(decoder(**GPT | {"feed_forward": feed_forward, "window": window}), theirs, table)


@case("rasbt ch04 MoE")
def experts(folder: Path) -> float:
    cfg = RASBT | {"num_experts": 4, "num_experts_per_tok": 2}
    ns = rasbt(folder, "ch04/07_moe/gpt_with_kv_moe.py")
    ns |= {"MOE_FF_TIME_MS": [], "MOE_FF_MEM_BYTES": [], "time": __import__("time")}
    theirs = fill(ns["GPTModel"](cfg))
    table = gpt_table() | {"trf_blocks.{i}.ff.gate": "layers.{i}.feed_forward.router"}
    for e in range(4):
        table |= {
            f"trf_blocks.{{i}}.ff.{their}.{e}": f"layers.{{i}}.feed_forward.experts.{e}.{our}"
            for their, our in (("fc1", "gate"), ("fc2", "up"), ("fc3", "down"))
        }
    feed_forward = choices.MixtureOfExperts(n_experts=4, n_active=2, d_ff=32)
    return run_decoder(decoder(**GPT | {"feed_forward": feed_forward}), theirs, table)


def run(folder: Path) -> Iterator[tuple[str, str]]:
    for name, function in CASES.items():
        torch.manual_seed(0)
        try:
            with torch.no_grad(), NothingBelowFloat64():
                yield name, f"{function(folder):.1e}"
        except FileNotFoundError as missing:
            yield name, f"not there: {missing.filename}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the repositories are")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error(f"folder must be a folder, got {arguments.folder}")
    torch.set_default_dtype(torch.float64)
    print("| model | largest difference |\n|---|---|")
    for name, answer in run(arguments.folder):
        print(f"| {name} | {answer} |", flush=True)


if __name__ == "__main__":
    main()
