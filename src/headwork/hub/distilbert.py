"""DistilBERT: BERT of half the depth, without segments."""

from headwork import choices
from headwork.hub.bert import HeadTensors, read_head, write_labels
from headwork.hub.family import Family
from headwork.hub.names import Names, Table
from headwork.hub.settings import Settings, write_activation
from headwork.models import EncoderConfig

HEADS: dict[str, type[choices.EncoderHead]] = {
    "DistilBertModel": choices.NoHead,
    "DistilBertForMaskedLM": choices.MaskedLMHead,
    "DistilBertForSequenceClassification": choices.ClassificationHead,
    "DistilBertForTokenClassification": choices.TokenClassificationHead,
}

LAYER = "distilbert.transformer.layer.{i}"
LAYER_NAMES: Table = {
    "distilbert.embeddings.word_embeddings.weight": "embedding.table",
    "distilbert.embeddings.position_embeddings.weight": "layers.positions.table",
    "distilbert.embeddings.LayerNorm": "layers.embedding_norm",
    f"{LAYER}.attention.q_lin": "layers.{i}.attention.query",
    f"{LAYER}.attention.k_lin": "layers.{i}.attention.key",
    f"{LAYER}.attention.v_lin": "layers.{i}.attention.value",
    f"{LAYER}.attention.out_lin": "layers.{i}.attention.out",
    f"{LAYER}.sa_layer_norm": "layers.{i}.attention_norm",
    f"{LAYER}.ffn.lin1": "layers.{i}.feed_forward.up",
    f"{LAYER}.ffn.lin2": "layers.{i}.feed_forward.down",
    f"{LAYER}.output_layer_norm": "layers.{i}.feed_forward_norm",
}

HEAD_NAMES: dict[type[choices.EncoderHead], Table] = {
    choices.NoHead: {},
    choices.EmbeddingHead: {},
    choices.MaskedLMHead: {
        "vocab_transform": "head.dense",
        "vocab_layer_norm": "head.norm",
        "vocab_projector.bias": "head.lm_head.bias",
    },
    choices.ClassificationHead: {"pre_classifier": "head.dense", "classifier": "head.classifier"},
    choices.TokenClassificationHead: {"classifier": "head.classifier"},
}


HEAD_TENSORS: HeadTensors = {
    choices.ClassificationHead: ("classifier.weight", "pre_classifier.weight"),
    choices.MaskedLMHead: ("vocab_transform.weight",),
    choices.TokenClassificationHead: ("classifier.weight",),
}
COPIES = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}


def names(config: EncoderConfig) -> Names:
    return Names(
        {**LAYER_NAMES, **HEAD_NAMES[type(config.head)]},
        prefix="distilbert.",
        copies=COPIES if isinstance(config.head, choices.MaskedLMHead) else {},
        ignored=("distilbert.embeddings.position_ids",),
    )


def config_from(settings: Settings) -> EncoderConfig:
    """Sinusoidal positions are a table in the file as learned ones are; the setting says how it started."""
    activation = settings.activation("activation", "gelu")
    settings.only(tie_word_embeddings=True)
    settings.harmless("sinusoidal_pos_embds", "qa_dropout", "seq_classif_dropout", "tie_weights_")
    return EncoderConfig(
        vocab=settings.count("vocab_size", 30_522),
        head=read_head(settings, HEADS, HEAD_TENSORS, activation, of_classes="relu"),
        d_model=settings.count("dim", 768, alias="hidden_size"),
        n_layers=settings.layers("n_layers", 6, alias="num_hidden_layers"),
        heads=choices.Heads(n_heads=settings.count("n_heads", 12, alias="num_attention_heads")),
        feed_forward=choices.FeedForward(d_ff=settings.count("hidden_dim", 3072), activation=activation),
        position=choices.LearnedPositions(max_tokens=settings.count("max_position_embeddings", 512)),
        n_segments=0,
        dropout=settings.number("dropout", 0.1),
        attention_dropout=settings.number("attention_dropout", 0.1),
    )


def config_to(config: EncoderConfig) -> dict[str, object]:
    return {
        "model_type": "distilbert",
        "architectures": [next(name for name, head in HEADS.items() if head is type(config.head))],
        "vocab_size": config.vocab,
        "dim": config.d_model,
        "n_layers": config.n_layers,
        "n_heads": config.heads.n_heads,
        "hidden_dim": config.feed_forward.d_ff,
        "activation": write_activation(config.feed_forward.activation),
        "max_position_embeddings": config.max_tokens or 512,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        **write_labels(config.head),
    }


DISTILBERT = Family(
    name="DistilBERT",
    model_types=("distilbert",),
    config_class=EncoderConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
