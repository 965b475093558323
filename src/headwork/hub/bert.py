"""BERT: as masked language model, as classifier of texts, and without a head (sentence embeddings)."""

from collections.abc import Mapping
from typing import Literal

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.names import Names, Table
from headwork.hub.settings import Settings, write_activation
from headwork.models import EncoderConfig

HEADS: dict[str, type[choices.EncoderHead]] = {
    "BertModel": choices.NoHead,
    "BertForMaskedLM": choices.MaskedLMHead,
    "BertForPreTraining": choices.MaskedLMHead,
    "BertForSequenceClassification": choices.ClassificationHead,
    "BertForTokenClassification": choices.TokenClassificationHead,
}

OF_OTHER_LANGUAGES = ("fc_size", "num_attention_heads", "num_fc_layers", "size_per_head", "type")
"""What the folders of Google's multilingual models say of a pooler that nobody has."""

HeadTensors = Mapping[type[choices.EncoderHead], tuple[str, ...]]

HEAD_NAMES: dict[type[choices.EncoderHead], Table] = {
    choices.NoHead: {},
    choices.EmbeddingHead: {},
    choices.MaskedLMHead: {
        "cls.predictions.transform.dense": "head.dense",
        "cls.predictions.transform.LayerNorm": "head.norm",
        "cls.predictions.bias": "head.lm_head.bias",
    },
    choices.ClassificationHead: {"bert.pooler.dense": "head.dense", "classifier": "head.classifier"},
    choices.TokenClassificationHead: {"classifier": "head.classifier"},
}


COPIES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def layer_names(base: str) -> Table:
    """The names without a head, which RoBERTa has as well."""
    layer = f"{base}encoder.layer.{{i}}"
    return {
        f"{base}embeddings.word_embeddings.weight": "embedding.table",
        f"{base}embeddings.position_embeddings.weight": "layers.positions.table",
        f"{base}embeddings.token_type_embeddings.weight": "segments.table",
        f"{base}embeddings.LayerNorm": "layers.embedding_norm",
        f"{layer}.attention.self.query": "layers.{i}.attention.query",
        f"{layer}.attention.self.key": "layers.{i}.attention.key",
        f"{layer}.attention.self.value": "layers.{i}.attention.value",
        f"{layer}.attention.output.dense": "layers.{i}.attention.out",
        f"{layer}.attention.output.LayerNorm": "layers.{i}.attention_norm",
        f"{layer}.intermediate.dense": "layers.{i}.feed_forward.up",
        f"{layer}.output.dense": "layers.{i}.feed_forward.down",
        f"{layer}.output.LayerNorm": "layers.{i}.feed_forward_norm",
    }


HEAD_TENSORS: HeadTensors = {
    choices.ClassificationHead: ("classifier.weight", "bert.pooler.dense.weight"),
    choices.MaskedLMHead: ("cls.predictions.transform.dense.weight",),
    choices.TokenClassificationHead: ("classifier.weight",),
}


def names(config: EncoderConfig) -> Names:
    """Only the classification head reads the pooler, and nobody the guess of the next sentence."""
    kind = type(config.head)
    return Names(
        {**layer_names("bert."), **HEAD_NAMES[kind]},
        prefix="bert.",
        copies=COPIES if kind is choices.MaskedLMHead else {},
        ignored=("bert.embeddings.position_ids",),
        left_out=("cls.seq_relationship",),
        old_endings={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    )


def config_from(settings: Settings) -> EncoderConfig:
    activation = settings.activation("hidden_act", "gelu")
    return read_encoder(settings, read_head(settings, HEADS, HEAD_TENSORS, activation), activation)


def read_head(
    settings: Settings,
    heads: Mapping[str, type[choices.EncoderHead]],
    head_tensors: HeadTensors,
    activation: choices.Activation,
    of_classes: Literal["tanh", "relu"] = "tanh",
) -> choices.EncoderHead:
    """The head of the files: masked language model or classes of texts, with a dense layer, or classes of tokens."""
    kind = find_head(settings, heads, head_tensors)
    if kind is choices.ClassificationHead:
        first = choices.FirstToken()
        return choices.ClassificationHead(n_classes=settings.n_labels, pooling=first, activation=of_classes)
    if kind is choices.TokenClassificationHead:
        return choices.TokenClassificationHead(n_classes=settings.n_labels)
    return choices.MaskedLMHead(activation=activation) if kind is choices.MaskedLMHead else choices.NoHead()


def find_head(
    settings: Settings, heads: Mapping[str, type[choices.EncoderHead]], head_tensors: HeadTensors
) -> type[choices.EncoderHead]:
    """That of the class which the settings name, if the files have any of it, or else one that the files have whole.

    A classifier has to be named if any class is, for that of another task can have the same tensors.
    """
    named = settings.class_name
    kind = heads.get(named or "")
    if kind is not None and (kind not in head_tensors or settings.has_any(head_tensors[kind])):
        return kind
    options = head_tensors if named is None else [choices.MaskedLMHead]
    return next((kind for kind in options if settings.has_all(head_tensors[kind])), choices.NoHead)


def read_encoder(
    settings: Settings, head: choices.EncoderHead, activation: choices.Activation, *, n_unused: int = 0
) -> EncoderConfig:
    """The settings of BERT; so many of the positions are there, and not used."""
    settings.only(position_embedding_type="absolute", tie_word_embeddings=True)
    settings.harmless("classifier_dropout", *(f"pooler_{name}" for name in OF_OTHER_LANGUAGES), "directionality")
    settings.harmless("emb_size", "embedding_size")  # which Hugging Face does not read either: it is hidden_size
    n_positions = settings.count("max_position_embeddings", 512)
    if n_positions <= n_unused:
        raise ValueError(f"max_position_embeddings must be more than {n_unused}, got {n_positions}")
    return EncoderConfig(
        vocab=settings.count("vocab_size", 30_522),
        head=head,
        d_model=settings.count("hidden_size", 768),
        n_layers=settings.layers("num_hidden_layers", 12),
        heads=choices.Heads(n_heads=settings.count("num_attention_heads", 12)),
        feed_forward=choices.FeedForward(d_ff=settings.count("intermediate_size", 3072), activation=activation),
        norm=choices.LayerNorm(eps=settings.number("layer_norm_eps", 1e-12)),
        position=choices.LearnedPositions(max_tokens=n_positions - n_unused),
        n_segments=settings.count("type_vocab_size", 2),
        dropout=settings.number("hidden_dropout_prob", 0.1),
        attention_dropout=settings.number("attention_probs_dropout_prob", 0.1),
    )


def config_to(config: EncoderConfig) -> dict[str, object]:
    """The settings of a post-norm text encoder as BERT names them."""
    return {
        "model_type": "bert",
        "architectures": [next(name for name, head in HEADS.items() if head is type(config.head))],
        "vocab_size": config.vocab,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.heads.n_heads,
        "intermediate_size": config.feed_forward.d_ff,
        "hidden_act": write_activation(config.feed_forward.activation),
        "layer_norm_eps": config.norm.eps,
        "max_position_embeddings": config.max_tokens or 512,
        "type_vocab_size": config.n_segments or 1,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        **write_labels(config.head),
    }


def write_labels(head: choices.EncoderHead) -> dict[str, object]:
    if isinstance(head, choices.ClassificationHead | choices.TokenClassificationHead):
        return labels(head.n_classes)
    return {}


def labels(n_classes: int) -> dict[str, object]:
    """Names of classes that have none."""
    names = [f"LABEL_{i}" for i in range(n_classes)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


BERT = Family(
    name="BERT",
    model_types=("bert",),
    config_class=EncoderConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
