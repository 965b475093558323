"""The attention modules of PyTorch and ours, both ways: the same weights under other names.

| PyTorch | here |
|---|---|
| `nn.MultiheadAttention` | `hw.layers.MultiHeadAttention` |
| `nn.TransformerEncoderLayer`, `nn.TransformerDecoderLayer` | `hw.layers.EncoderLayer`, `hw.layers.DecoderLayer` |
| `nn.TransformerEncoder`, `nn.TransformerDecoder` | a `hw.layers.Stack` of these layers |
| `nn.Transformer` | `hw.convert.Transformer`, its two stacks |

PyTorch has queries, keys and values in one matrix, `in_proj_weight` = [W_query; W_key; W_value].
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwork import choices, layers
from headwork.checks import with_article
from headwork.layers.feed_forward import ACTIVATIONS

Pair = tuple[nn.Parameter, Tensor]
"""A parameter of ours, and the same one of PyTorch's or the rows of it."""

FUNCTIONS: dict[Callable[..., Tensor], choices.Activation] = {
    F.relu: "relu",
    torch.relu: "relu",
    F.gelu: "gelu",
    F.silu: "silu",
}
OF_ENCODER = {"self_attn": "attention", "norm1": "attention_norm", "norm2": "feed_forward_norm"}
OF_DECODER = {
    "self_attn": "attention",
    "norm1": "attention_norm",
    "multihead_attn": "cross_attention",
    "norm2": "cross_attention_norm",
    "norm3": "feed_forward_norm",
}
OF_BOTH = {"linear1": "feed_forward.up", "linear2": "feed_forward.down"}


class Transformer(nn.Module):
    """The two stacks of `nn.Transformer`: vectors of a source and of a target in, vectors of the target out.

    >>> model = from_torch(nn.Transformer(8, 2, 1, 1, 32, batch_first=True))
    >>> model(torch.randn(1, 5, 8), torch.randn(1, 3, 8), causal=True).shape
    torch.Size([1, 3, 8])
    """

    axes = "batch token d_model"

    def __init__(self, encoder_layers: layers.Stack, decoder_layers: layers.Stack) -> None:
        super().__init__()
        self.encoder_layers, self.decoder_layers = encoder_layers, decoder_layers

    def forward(
        self,
        source: Float[Tensor, "batch source_token d_model"],
        target: Float[Tensor, "batch token d_model"],
        *,
        source_visible: Bool[Tensor, "batch source_token"] | None = None,
        target_visible: Bool[Tensor, "batch token"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "batch token d_model"]:
        """`..._visible` marks the real tokens (True = may attend); with `causal` no target token sees a later one."""
        memory = self.encoder_layers(source, visible=source_visible)
        return self.decoder_layers(
            target, visible=target_visible, causal=causal, memory=memory, memory_visible=source_visible
        )


# --- from PyTorch ----------------------------------------------------------------------------------------------------


def from_torch(module: nn.Module) -> nn.Module:
    """One of PyTorch's attention modules as one of ours, with a copy of its weights; see the table above.

    Here batches come first, whatever `batch_first` was. Masks say what may be seen: `visible` is `~key_padding_mask`
    and `~attn_mask`. A `DecoderLayer` is causal unless it is called with `causal=False`, as PyTorch's is without a
    mask. What is frozen stays frozen. What there is no place for (`add_bias_kv`, an activation, a class of your own) is
    refused by its name.

    >>> theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8)
    >>> torch.allclose(hw.from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6)
    True
    """
    makers = {
        nn.MultiheadAttention: _make_attention,
        nn.TransformerEncoderLayer: _make_layer,
        nn.TransformerDecoderLayer: _make_layer,
        nn.TransformerEncoder: _make_stack,
        nn.TransformerDecoder: _make_stack,
        nn.Transformer: _make_transformer,
    }
    if type(module) not in makers:
        known = ", ".join(f"nn.{kind.__name__}" for kind in makers)
        raise TypeError(f"module must be one of {known}, got {_named(module)}")
    with torch.device("meta"):
        ours = makers[type(module)](module)  # type: ignore[operator]
    ours = _like(ours, module)
    for mine, theirs in pairs(ours, module):
        mine.requires_grad_(theirs.requires_grad)
        mine.data.copy_(theirs.detach())
    return ours.train(module.training)


def _make_attention(theirs: nn.MultiheadAttention) -> layers.MultiHeadAttention:
    if theirs.bias_k is not None or theirs.bias_v is not None:
        raise ValueError("add_bias_kv must be False: Headwork has no learned key and value beside those of the tokens")
    if theirs.add_zero_attn:
        raise ValueError("add_zero_attn must be False: Headwork has no key and value of zeros beside the tokens'")
    return layers.MultiHeadAttention(
        theirs.embed_dim,
        theirs.num_heads,
        d_memory=theirs.kdim,
        d_values=theirs.vdim,
        bias=theirs.in_proj_bias is not None,
        out_bias=theirs.out_proj.bias is not None,
        dropout=theirs.dropout,
    )


def _make_layer(theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> nn.Module:
    is_decoder = isinstance(theirs, nn.TransformerDecoderLayer)
    attentions = [
        cast(nn.MultiheadAttention, getattr(theirs, name)) for name in ("self_attn", "multihead_attn")[: 1 + is_decoder]
    ]
    norms = [cast(nn.LayerNorm, getattr(theirs, f"norm{i}")) for i in range(1, 3 + is_decoder)]
    _check_kinds(theirs, self_attn=nn.MultiheadAttention, linear1=nn.Linear, linear2=nn.Linear)
    for attention in attentions:
        _make_attention(attention)  # for its errors
    for norm in norms:
        _check_norm(norm, type(theirs).__name__)
    first, linear = attentions[0], theirs.linear1
    make = layers.DecoderLayer if is_decoder else layers.EncoderLayer
    return make(
        first.embed_dim,
        heads=choices.Heads(
            n_heads=_only("the heads", [attention.num_heads for attention in attentions]),
            bias=_only("the biases of attention", [attention.in_proj_bias is not None for attention in attentions]),
            out_bias=_only("the biases of out_proj", [each.out_proj.bias is not None for each in attentions]),
        ),
        feed_forward=choices.FeedForward(
            d_ff=linear.out_features,
            activation=_read_activation(theirs.activation),
            bias=_only("the biases of linear1 and linear2", [linear.bias is not None, theirs.linear2.bias is not None]),
        ),
        norm_order="pre" if theirs.norm_first else "post",
        norm=choices.LayerNorm(
            eps=_only("eps of the norms", [norm.eps for norm in norms]),
            bias=_only("the biases of the norms", [norm.bias is not None for norm in norms]),
        ),
        dropout=_only("dropout1, dropout2, ...", [getattr(theirs, f"dropout{i + 1}").p for i in range(len(norms))]),
        attention_dropout=_only("dropout of attention", [attention.dropout for attention in attentions]),
        feed_forward_dropout=theirs.dropout.p,
    )


def _make_stack(theirs: nn.TransformerEncoder | nn.TransformerDecoder) -> layers.Stack:
    kind = nn.TransformerEncoderLayer if isinstance(theirs, nn.TransformerEncoder) else nn.TransformerDecoderLayer
    made = []
    for layer in theirs.layers:
        if type(layer) is not kind:
            raise ValueError(f"the layers of {_named(theirs)} must be nn.{kind.__name__}, got {_named(layer)}")
        made.append(_make_layer(layer))
    if theirs.norm is None:
        return layers.Stack(made)
    norm = _check_norm(theirs.norm, type(theirs).__name__)
    return layers.Stack(
        made, final_norm=layers.LayerNorm(norm.normalized_shape[0], eps=norm.eps, bias=norm.bias is not None)
    )


def _make_transformer(theirs: nn.Transformer) -> Transformer:
    for name, kind in (("encoder", nn.TransformerEncoder), ("decoder", nn.TransformerDecoder)):
        if type(getattr(theirs, name)) is not kind:
            raise ValueError(f"{name} must be nn.{kind.__name__}, got {_named(getattr(theirs, name))}")
    return Transformer(_make_stack(theirs.encoder), _make_stack(theirs.decoder))


# --- to PyTorch ------------------------------------------------------------------------------------------------------


def to_torch(model: nn.Module, *, batch_first: bool = True) -> nn.Module:
    """One of our modules as PyTorch's, with a copy of its weights: the way back of `from_torch`.

    What PyTorch has no place for (other norms, gates, positions, fewer key heads, a `beta` of its own) is refused.

    >>> ours = hw.layers.MultiHeadAttention(d_model=8, n_heads=2)
    >>> x = torch.randn(1, 5, 8)
    >>> torch.allclose(hw.to_torch(ours)(x, x, x)[0], ours(x), atol=1e-6)
    True
    """
    makers = {
        layers.MultiHeadAttention: _their_attention,
        layers.EncoderLayer: _their_layer,
        layers.DecoderLayer: _their_layer,
        layers.Stack: _their_stack,
        Transformer: _their_transformer,
    }
    if type(model) not in makers:
        known = ", ".join(kind.__name__ for kind in makers)
        raise TypeError(f"model must be one of {known}, got {_named(model)}")
    with torch.device("meta"):
        theirs = makers[type(model)](model, batch_first)  # type: ignore[operator]
    theirs = _like(theirs, model)
    frozen: dict[int, bool] = {}
    for mine, part in pairs(model, theirs):
        whole = part if part._base is None else part._base
        if frozen.setdefault(id(whole), not mine.requires_grad) != (not mine.requires_grad):
            raise ValueError("query, key and value must be frozen together, since PyTorch has one matrix for all three")
        part.detach().copy_(mine.detach())
        whole.requires_grad_(mine.requires_grad)
    return theirs.train(model.training)


def _their_attention(ours: layers.MultiHeadAttention, batch_first: bool) -> nn.MultiheadAttention:
    width = ours.d_model // ours.n_heads
    wanted: dict[str, tuple[object, object]] = {
        "n_kv_heads": (ours.n_kv_heads, ours.n_heads),
        "d_head": (ours.d_head, width),
        "d_value": (ours.d_value, width),
        "d_out": (ours.d_out, ours.d_model),
        "beta": (ours.beta, width**-0.5),
        "relative": (ours.relative, None),
        "qk_norm": (ours.qk_norm, None),
        "window": (ours.window, None),
        "value_residual": (ours.value_residual is not None, False),
        "out_bias": (ours.out.bias is not None, cast(nn.Linear, ours.query).bias is not None),
    }
    _check_values("nn.MultiheadAttention", wanted)
    return nn.MultiheadAttention(
        ours.d_model,
        ours.n_heads,
        dropout=ours.dropout,
        bias=ours.out.bias is not None,
        kdim=ours.d_memory,
        vdim=ours.d_values,
        batch_first=batch_first,
    )


def _their_layer(ours: layers.EncoderLayer | layers.DecoderLayer, batch_first: bool) -> nn.Module:
    is_decoder = isinstance(ours, layers.DecoderLayer)
    kind = nn.TransformerDecoderLayer if is_decoder else nn.TransformerEncoderLayer
    name, feed_forward, attention = f"nn.{kind.__name__}", ours.feed_forward, ours.attention
    if isinstance(ours, layers.DecoderLayer) and ours.cross_attention is None:
        raise ValueError(f"cross_attention must be True for {name}, which always has a memory, got False")
    for each in (attention, ours.cross_attention) if isinstance(ours, layers.DecoderLayer) else (attention,):
        if type(each) is not layers.MultiHeadAttention:
            raise ValueError(f"attention must be MultiHeadAttention for {name}, got {_named(each)}")
        _their_attention(each, batch_first)  # for its errors
    if type(feed_forward) is not layers.FeedForward:
        raise ValueError(f"feed_forward must be FeedForward for {name}, got {_named(feed_forward)}")
    norm = ours.attention_norm
    if not isinstance(norm, layers.LayerNorm):
        raise ValueError(f"norm must be LayerNorm for {name}, got {_named(norm)}")
    bias = attention.out.bias is not None
    _check_values(
        name,
        {
            "bias of the feed-forward network": (feed_forward.up.bias is not None, bias),
            "bias of the norms": (norm.bias is not None, bias),
        },
    )
    made: Any = kind(
        attention.d_model,
        attention.n_heads,
        feed_forward.up.out_features,
        dropout=ours.dropout.p,
        activation=_write_activation(feed_forward.activation),
        layer_norm_eps=norm.eps,
        batch_first=batch_first,
        norm_first=ours.norm_first,
        bias=bias,
    )
    made.dropout.p = feed_forward.dropout.p
    made.self_attn.dropout = attention.dropout
    if is_decoder:
        made.multihead_attn.dropout = ours.cross_attention.dropout  # type: ignore[union-attr]
    return made


def _their_stack(ours: layers.Stack, batch_first: bool) -> nn.Module:
    kinds = {type(layer) for layer in ours}
    if kinds not in ({layers.EncoderLayer}, {layers.DecoderLayer}):
        got = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none"
        raise ValueError(f"the layers of a Stack must be EncoderLayers or DecoderLayers for PyTorch, got {got}")
    kind = nn.TransformerEncoder if kinds == {layers.EncoderLayer} else nn.TransformerDecoder
    name, norm = f"nn.{kind.__name__}", ours.final_norm
    positions = None if type(ours.positions) is layers.Positions else _named(ours.positions)
    _check_values(
        name,
        {
            "positions": (positions, None),
            "embedding_norm": (None if ours.embedding_norm is None else _named(ours.embedding_norm), None),
            "dropout of the embedded tokens": (ours.dropout.p, 0.0),
        },
    )
    if norm is not None and not isinstance(norm, layers.LayerNorm):
        raise ValueError(f"final_norm must be LayerNorm for {name}, got {_named(norm)}")
    made: Any = [_their_layer(layer, batch_first) for layer in ours]  # type: ignore[arg-type]
    final = None if norm is None else nn.LayerNorm(len(norm.weight), eps=norm.eps, bias=norm.bias is not None)
    # Without nested tensors: with them, padding comes out as zeros in evaluation and as vectors in training.
    options = {"enable_nested_tensor": False} if kind is nn.TransformerEncoder else {}
    stack = kind(made[0], len(made), norm=final, **options)
    stack.layers = nn.ModuleList(made)
    return stack


def _their_transformer(ours: Transformer, batch_first: bool) -> nn.Transformer:
    encoder, decoder = (_their_stack(stack, batch_first) for stack in (ours.encoder_layers, ours.decoder_layers))
    attention = cast(layers.EncoderLayer, ours.encoder_layers[0]).attention
    return nn.Transformer(
        attention.d_model,
        attention.n_heads,
        custom_encoder=encoder,
        custom_decoder=decoder,
        batch_first=batch_first,
    )


# --- whose parameter is whose ----------------------------------------------------------------------------------------


def pairs(ours: nn.Module, theirs: nn.Module) -> Iterator[Pair]:
    """Each parameter of ours with the one of PyTorch's, or the rows of it, that has the same numbers."""
    match theirs:
        case nn.MultiheadAttention():
            yield from _pairs_of_attention(ours, theirs)
        case nn.TransformerEncoderLayer() | nn.TransformerDecoderLayer():
            table = OF_DECODER if isinstance(theirs, nn.TransformerDecoderLayer) else OF_ENCODER
            for name, mine in {**table, **OF_BOTH}.items():
                yield from pairs(ours.get_submodule(mine), theirs.get_submodule(name))
        case nn.TransformerEncoder() | nn.TransformerDecoder():
            for number, layer in enumerate(theirs.layers):
                yield from pairs(ours.get_submodule(str(number)), layer)
            if theirs.norm is not None:
                yield from pairs(ours.get_submodule("final_norm"), theirs.norm)
        case nn.Transformer():
            yield from pairs(ours.get_submodule("encoder_layers"), theirs.encoder)
            yield from pairs(ours.get_submodule("decoder_layers"), theirs.decoder)
        case _:
            for name, parameter in theirs.named_parameters():
                yield ours.get_parameter(name), parameter


def _pairs_of_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> Iterator[Pair]:
    parts = ("query", "key", "value")
    if theirs.in_proj_weight is not None:
        weights = theirs.in_proj_weight.chunk(3)
    else:
        weights = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    for part, weight in zip(parts, weights, strict=True):
        yield ours.get_parameter(f"{part}.weight"), weight
    if theirs.in_proj_bias is not None:
        for part, bias in zip(parts, theirs.in_proj_bias.chunk(3), strict=True):
            yield ours.get_parameter(f"{part}.bias"), bias
    yield from pairs(ours.get_submodule("out"), theirs.out_proj)


# --- what can be said ------------------------------------------------------------------------------------------------


def _like(new: nn.Module, old: nn.Module) -> nn.Module:
    """Made without numbers; now in the precision and on the device of the other."""
    parameter = next(old.parameters())
    return new.to(dtype=parameter.dtype).to_empty(device=parameter.device)


def _read_activation(activation: object) -> choices.Activation:
    modules: dict[type, choices.Activation] = {nn.ReLU: "relu", nn.SiLU: "silu", nn.GELU: "gelu"}
    if isinstance(activation, nn.GELU) and activation.approximate == "tanh":
        return "gelu_tanh"
    if type(activation) in modules:
        return modules[type(activation)]
    found = FUNCTIONS.get(activation) if callable(activation) else None
    if found is None:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"activation must be one that Headwork has ({known}), got {activation!r}")
    return found


def _write_activation(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    name = next(name for name, function in ACTIVATIONS.items() if function is activation)
    theirs: dict[str, Callable[..., Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
    return nn.GELU("tanh") if name == "gelu_tanh" else theirs[name]


def _check_norm(norm: nn.Module, where: str) -> nn.LayerNorm:
    if type(norm) is not nn.LayerNorm or not norm.elementwise_affine or len(norm.normalized_shape) != 1:
        raise ValueError(f"the norms of nn.{where} must be nn.LayerNorm of one axis with weights, got {norm}")
    return norm


def _check_kinds(module: nn.Module, **kinds: type) -> None:
    for name, kind in kinds.items():
        if type(getattr(module, name)) is not kind:
            got = _named(getattr(module, name))
            raise ValueError(f"{name} of {_named(module)} must be nn.{kind.__name__}, got {got}")


def _check_values(name: str, wanted: Mapping[str, tuple[object, object]]) -> None:
    for what, (value, needed) in wanted.items():
        if value != needed:
            raise ValueError(f"{what} must be {needed} for {name}, got {value}")


def _only(what: str, values: list[Any]) -> Any:
    """The one value of all, which Headwork has once."""
    if len(set(values)) > 1:
        raise ValueError(f"{what} must be the same everywhere in a layer, got {', '.join(map(str, values))}")
    return values[0]


def _named(module: object) -> str:
    return with_article(
        f"nn.{type(module).__name__}" if type(module).__module__.startswith("torch.") else type(module).__name__
    )
