"""Which of LitGPT's model configs a `DecoderConfig` can say, and how far its numbers are from LitGPT's.

    pip download --no-deps litgpt==0.5.13
    python benchmarks/litgpt_configs.py litgpt-0.5.13-py3-none-any.whl

Every config is shrunk to two narrow layers with its structure kept: which norms, residuals, rotation, heads, windows,
caps and experts. LitGPT's model gets random weights, ours the same ones, and both read the same tokens in float64.
Nothing of LitGPT is installed: its two files are read out of the wheel.
"""

import argparse
import json
import sys
import types
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from headwork import choices
from headwork.hub.names import Names, OneLess, Rule, SideBySide, Table
from headwork.models import Decoder, DecoderConfig

N_TOKENS, WINDOW = 24, 7
SMALL = {"n_layer": 2, "block_size": 32, "padded_vocab_size": 61, "vocab_size": 61, "intermediate_size": 48}


class NothingBelowFloat64(TorchFunctionMode):
    """LitGPT computes norms, rotations and router weights in float32; not in here."""

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        def wide(value: object) -> object:
            return torch.float64 if value is torch.float32 else value

        func = Tensor.double if func is Tensor.float else func
        return func(*map(wide, args), **{name: wide(value) for name, value in (kwargs or {}).items()})


def open_wheel(wheel: Path) -> tuple[Any, Any]:
    """LitGPT's `config` and `model` out of its wheel, without the packages that its training needs."""
    if not wheel.is_file():
        raise SystemExit(f"wheel must be a file, got {wheel}: pip download --no-deps litgpt==0.5.13 fetches it")
    package, scripts = types.ModuleType("litgpt"), types.ModuleType("litgpt.scripts")
    package.__path__, scripts.__path__ = [f"{wheel}/litgpt"], []
    converter = types.ModuleType("litgpt.scripts.convert_hf_checkpoint")
    converter.qkv_reassemble = None  # for files of old versions only
    sys.modules |= {module.__name__: module for module in (package, scripts, converter)}
    from litgpt import config, model  # type: ignore[import-not-found]

    return config, model


# --- their config, shrunk --------------------------------------------------------------------------------------------


def shrink(theirs: dict[str, Any], config_class: Any) -> Any:
    """The same structure in two narrow layers: a windowed one and a whole one, where there are both."""
    full = config_class(**theirs)
    groups = {1: 1, full.n_head: 4}.get(full.n_query_groups, 2)
    own_width = full.head_size * full.n_head != full.n_embd
    small = (
        theirs | SMALL | {"n_head": 4, "n_query_groups": groups, "n_embd": 96 if own_width else 160, "head_size": 40}
    )
    if full.sliding_window_size is not None:
        both = len(set(full.sliding_window_indices)) > 1
        small |= {"sliding_window_size": WINDOW, "sliding_window_indices": [1, 0] if both else [1, 1]}
    if full.rope_indices is not None:
        small["rope_indices"] = [1, 0]
    if full.n_expert:
        small |= {"n_expert": 8, "n_expert_per_token": 2, "moe_intermediate_size": 16}
    return config_class(**small)


# --- in our words ----------------------------------------------------------------------------------------------------


def say(c: Any) -> DecoderConfig:
    """The same model as a config of ours; what cannot be said is refused by name."""
    for name in ("latent_attention", "n_expert_groups", "n_shared_expert", "first_k_dense_replace"):
        if getattr(c, name):
            raise ValueError(f"{name} must be absent, got {getattr(c, name)!r}")
    norm = choices.RMSNorm(eps=c.norm_eps) if c.norm_class_name == "RMSNorm" else choices.LayerNorm(eps=c.norm_eps)
    per_head = c.norm_qk_type == "default"
    return DecoderConfig(
        vocab=c.padded_vocab_size,
        d_model=c.n_embd,
        n_layers=c.n_layer,
        heads=choices.Heads(
            n_heads=c.n_head,
            n_kv_heads=c.n_query_groups,
            d_head=c.head_size,
            d_value=c.head_size,
            bias=c.bias or c.attn_bias,
            out_bias=c.bias,
            beta=None if c.attention_scores_scalar is None else c.attention_scores_scalar**-0.5,
            qk_norm=choices.QKNorm(norm=norm, per_head=per_head) if c.norm_qk else None,
            softcap=c.attention_logit_softcapping,
        ),
        feed_forward=say_feed_forward(c),
        norm=norm,
        layer=say_layer(c),
        position=choices.RotaryPositions(
            base=c.rope_base,
            layout="interleaved" if c.rope_interleave else "halves",
            fraction=c.rotary_percentage,
            scaling=say_scaling(c),
            max_tokens=c.block_size,
        ),
        window=say_window(c),
        scaled_embedding=c.scale_embeddings,
        lm_head=choices.UntiedLMHead(bias=c.lm_head_bias, softcap=c.final_logit_softcapping),
        dropout=0.0,
        attention_dropout=0.0,
    )


def say_feed_forward(c: Any) -> choices.AnyFeedForward:
    gelu = "gelu_tanh" if c.gelu_approximate == "tanh" else "gelu"
    match c.mlp_class_name:
        case "GptNeoxMLP":
            return choices.FeedForward(d_ff=c.intermediate_size, activation=gelu, bias=c.bias)
        case "LLaMAMLP":
            return choices.GatedFeedForward(d_ff=c.intermediate_size, bias=c.bias)
        case "GemmaMLP":
            return choices.GatedFeedForward(d_ff=c.intermediate_size, activation=gelu, bias=c.bias)
        case "LLaMAMoE":
            d_ff = c.moe_intermediate_size or c.intermediate_size
            return choices.MixtureOfExperts(n_experts=c.n_expert, n_active=c.n_expert_per_token, d_ff=d_ff, bias=c.bias)
    raise ValueError(f"mlp_class_name must be one that is known here, got {c.mlp_class_name!r}")


def say_layer(c: Any) -> choices.AnyLayer:
    before, behind = (c.norm_1, c.norm_2), (c.post_attention_norm, c.post_mlp_norm)
    match c.parallel_residual, before, behind:
        case True, (True, True), (False, False):
            return choices.ParallelLayer(shared_norm=c.shared_attention_norm)
        case False, (True, True), (False, False):
            return choices.SequentialLayer()
        case False, (True, True), (True, True):
            return choices.SandwichLayer()
        case False, (False, False), (True, True):
            return choices.BranchNormLayer()
    raise ValueError(f"norms must stand before, behind or around both branches, got {before} and {behind}")


def say_scaling(c: Any) -> choices.RotaryScaling | None:
    if c.rope_condense_ratio != 1:
        return choices.LinearScaling(factor=c.rope_condense_ratio)
    match c.rope_adjustments or {}:
        case {"low_freq_factor": low, "high_freq_factor": high, "factor": factor, "original_max_seq_len": n}:
            return choices.Llama3Scaling(factor=factor, original_max_tokens=n, low=low, high=high)
        case {"factor": factor, **more} if not more:
            return choices.LinearScaling(factor=factor)
        case {**more} if more:
            raise ValueError(f"rope_adjustments must be those that are known here, got {more}")
    return None


def say_window(c: Any) -> choices.SlidingWindow | None:
    if c.sliding_window_size is None:
        return None
    layers = tuple(i for i in range(c.n_layer) if c.sliding_window_indices[i])
    local = None
    if c.rope_local_base_freq is not None:
        if tuple(i for i in range(c.n_layer) if c.rope_indices[i]) != layers:
            raise ValueError(f"rope_indices must be sliding_window_indices, got {c.rope_indices}")
        local = choices.RotaryPositions(base=c.rope_local_base_freq, max_tokens=c.block_size)
    return choices.SlidingWindow(n_tokens=c.sliding_window_size, layers=layers, position=local)


def names_of(c: Any) -> Names:
    """Whose tensor is whose. Gemma's norms multiply by 1 + weight."""
    theirs, ours = "transformer.h.{i}", "layers.{i}"
    norm: Callable[[str], str | Rule] = OneLess if "Gemma" in c.name else str
    branch = not c.norm_1  # OLMo 2 has no norm before the branches
    experts: Table = {
        f"{theirs}.mlp.experts.{e}.{name}": f"{ours}.feed_forward.experts.{e}.{part}"
        for e in range(c.n_expert)
        for name, part in (("fc_1", "gate"), ("fc_2", "up"), ("proj", "down"))
    }
    return Names(
        {
            "lm_head": "lm_head",
            "transformer.wte.weight": "embedding.table",
            f"{theirs}.norm_1": norm(f"{ours}.attention_norm") if not branch else f"{ours}.none",
            f"{theirs}.norm_2": norm(f"{ours}.feed_forward_norm") if not branch else f"{ours}.none",
            f"{theirs}.post_attention_norm": norm(f"{ours}.attention_norm" if branch else f"{ours}.attention_out_norm"),
            f"{theirs}.post_mlp_norm": norm(f"{ours}.feed_forward_norm" if branch else f"{ours}.feed_forward_out_norm"),
            f"{theirs}.attn.qkv": SideBySide(tuple(f"{ours}.attention.{part}" for part in ("query", "key", "value"))),
            f"{theirs}.attn.proj": f"{ours}.attention.out",
            f"{theirs}.attn.norm_q": norm(f"{ours}.attention.query_norm"),
            f"{theirs}.attn.norm_k": norm(f"{ours}.attention.key_norm"),
            f"{theirs}.mlp.fc": f"{ours}.feed_forward.up",
            f"{theirs}.mlp.fc_1": f"{ours}.feed_forward.gate",
            f"{theirs}.mlp.fc_2": f"{ours}.feed_forward.up",
            f"{theirs}.mlp.proj": f"{ours}.feed_forward.down",
            f"{theirs}.mlp.gate": f"{ours}.feed_forward.router",
            **experts,
            "transformer.ln_f": norm("layers.final_norm"),
        }
    )


# --- side by side ----------------------------------------------------------------------------------------------------


def compare(small: Any, gpt: Any) -> float:
    """The largest difference of the logits, at once and one token at a time."""
    torch.manual_seed(0)
    ours = Decoder(say(small), dtype=torch.float64).eval()
    with torch.no_grad(), NothingBelowFloat64():
        theirs = gpt(small).double().eval()
        for p in theirs.parameters():
            p.copy_(0.3 * torch.randn(p.shape, dtype=torch.float64))
        ids = torch.randint(0, small.padded_vocab_size, (2, N_TOKENS))
        expected = theirs(ids)
    state, names = theirs.state_dict(), names_of(small)
    # fc_2 and up of a plain network have the same name here: only what is there is read.
    table = {their: rule for their, rule in names.table.items() if _is_there(their, state)}
    wanted = ours.state_dict()
    constant = {} if theirs.transformer.ln_f.weight is not None else constant_norms(wanted)
    read = dict(constant)
    for match in Names(table).matches({name: tensor for name, tensor in wanted.items() if name not in constant}):
        tensors = match.rule.read([state.pop(name) for name in match.theirs], [wanted[name] for name in match.ours])
        read |= dict(zip(match.ours, tensors, strict=True))
    assert not state, f"LitGPT has {', '.join(state)} beside"
    ours.load_state_dict(read)
    with torch.no_grad():
        whole, cache, step = ours(ids), ours.new_cache(), ours.one_token()
        assert step is not None
        one_by_one = torch.stack([step(ids[:, i : i + 1], None, cache) for i in range(N_TOKENS)], dim=1)
    return max((whole - expected).abs().max().item(), (one_by_one - expected).abs().max().item())


def constant_norms(wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """OLMo 1 has norms without weights: here they are ones, and the biases zeros."""
    norms = {name: tensor for name, tensor in wanted.items() if "norm" in name}
    return {name: torch.full_like(tensor, float(name.endswith("weight"))) for name, tensor in norms.items()}


def _is_there(name: str | tuple[str, ...], state: dict[str, Tensor]) -> bool:
    assert isinstance(name, str)
    stem = name.replace("{i}", "0")
    return any(key in state for key in (stem, f"{stem}.weight", f"{stem}.bias"))


@dataclass
class Row:
    """All configs of one structure."""

    names: list[str]
    needs: str
    error: float | None = None
    refused: str = ""


def structure_of(config: DecoderConfig) -> str:
    """What the config chooses beside the plain Llama or GPT."""
    heads, position, window, layer = config.heads, config.position, config.window, config.layer
    assert isinstance(heads, choices.Heads)
    assert isinstance(position, choices.RotaryPositions)
    said = [type(config.norm).__name__]
    said += [] if isinstance(layer, choices.SequentialLayer) else [type(layer).__name__]
    said += ["shared norm"] if getattr(layer, "shared_norm", False) else []
    said += [type(config.feed_forward).__name__ + f"({config.feed_forward.activation})"]
    said += ["bias"] if heads.out_bias else ["bias of q, k, v"] if heads.bias else []
    groups = heads.n_kv_heads or heads.n_heads
    said += [] if groups == heads.n_heads else ["multi-query"] if groups == 1 else ["grouped queries"]
    said += ["d_head of its own"] if heads.n_heads * config.d_head != config.d_model else []
    said += ["beta"] if heads.beta is not None else []
    said += [] if heads.qk_norm is None else ["QKNorm" + ("" if heads.qk_norm.per_head else "(per_head=False)")]
    said += [f"fraction={position.fraction}"] if position.fraction != 1 else []
    said += [] if position.scaling is None else [type(position.scaling).__name__]
    if window is not None:
        said += ["SlidingWindow" + ("" if len(window.layers or ()) == config.n_layers else " by layer")]
        said += [] if window.position is None else ["two rotary bases"]
    said += ["softcap"] if heads.softcap or config.lm_head.softcap else []
    said += ["scaled embedding"] if config.scaled_embedding else []
    return ", ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="the wheel of LitGPT, or any version of it")
    parser.add_argument("--json", action="store_true", help="one object for each config instead of the table")
    arguments = parser.parse_args()
    config, model = open_wheel(arguments.wheel)
    rows: dict[str, Row] = {}
    results: dict[str, Any] = {}
    why: defaultdict[str, list[str]] = defaultdict(list)
    for theirs in config.configs:
        small = shrink(theirs, config.Config)
        try:
            needs = structure_of(say(small))
            error = compare(small, model.GPT)
        except ValueError as refused:
            why[str(refused)].append(small.name)
            results[small.name] = {"said": False, "why": str(refused)}
            continue
        row = rows.setdefault(needs, Row([], needs, 0.0))
        row.names.append(small.name)
        row.error = max(row.error or 0.0, error)
        results[small.name] = {"said": True, "error": error}
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    said = sum(len(row.names) for row in rows.values())
    print(f"{said} of {len(config.configs)} configs, {len(rows)} structures\n")
    print("| configs | among them | what they choose | largest difference |\n|---|---|---|---|")
    for row in sorted(rows.values(), key=lambda row: -len(row.names)):
        some = ", ".join(dict.fromkeys((row.names[0], row.names[-1])))
        print(f"| {len(row.names)} | {some} | {row.needs} | {row.error:.1e} |")
    for reason, names in why.items():
        print(f"\nnot said: {', '.join(names)}: {reason}")


if __name__ == "__main__":
    main()
