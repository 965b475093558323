"""RoBERTa, XLM-RoBERTa and CamemBERT: BERT with heads of its own, and positions counted from the padding id on."""

from headwork import choices
from headwork.hub import bert
from headwork.hub.family import Family
from headwork.hub.names import LaterRows, Names, Table
from headwork.hub.settings import Settings
from headwork.models import EncoderConfig

PADDING = 1
"""The id of the padding in every published model of the family: positions 0 and 1 are not used."""
N_UNUSED = PADDING + 1

HEADS = {
    f"{model}{of}": head
    for of, head in {
        "Model": choices.NoHead,
        "ForMaskedLM": choices.MaskedLMHead,
        "ForSequenceClassification": choices.ClassificationHead,
        "ForTokenClassification": choices.TokenClassificationHead,
    }.items()
    for model in ("Roberta", "XLMRoberta", "Camembert")
}

HEAD_NAMES: dict[type[choices.EncoderHead], Table] = {
    choices.NoHead: {},
    choices.EmbeddingHead: {},
    choices.MaskedLMHead: {
        "lm_head.dense": "head.dense",
        "lm_head.layer_norm": "head.norm",
        "lm_head.bias": "head.lm_head.bias",
    },
    choices.ClassificationHead: {"classifier.dense": "head.dense", "classifier.out_proj": "head.classifier"},
    choices.TokenClassificationHead: {"classifier": "head.classifier"},
}


HEAD_TENSORS: bert.HeadTensors = {
    choices.ClassificationHead: ("classifier.out_proj.weight",),
    choices.MaskedLMHead: ("lm_head.dense.weight",),
    choices.TokenClassificationHead: ("classifier.weight",),
}
COPIES = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}


def names(config: EncoderConfig) -> Names:
    return Names(
        {
            **bert.layer_names("roberta."),
            "roberta.embeddings.position_embeddings.weight": LaterRows("layers.positions.table", N_UNUSED),
            **HEAD_NAMES[type(config.head)],
        },
        prefix="roberta.",
        copies=COPIES if isinstance(config.head, choices.MaskedLMHead) else {},
        ignored=("roberta.embeddings.position_ids",),
    )


def config_from(settings: Settings) -> EncoderConfig:
    """The activation of the masked language model's head is gelu, whatever that of the layers is."""
    settings.only(pad_token_id=PADDING)
    activation = settings.activation("hidden_act", "gelu")
    head = bert.read_head(settings, HEADS, HEAD_TENSORS, "gelu")
    return bert.read_encoder(settings, head, activation, n_unused=N_UNUSED)


def config_to(config: EncoderConfig) -> dict[str, object]:
    settings = bert.config_to(config)
    architecture = next(name for name, head in HEADS.items() if head is type(config.head))
    n_positions = (config.max_tokens or 512) + N_UNUSED
    own = {"model_type": "roberta", "architectures": [architecture], "max_position_embeddings": n_positions}
    return {**settings, **own, "pad_token_id": PADDING, "bos_token_id": 0, "eos_token_id": 2}


ROBERTA = Family(
    name="RoBERTa",
    model_types=("roberta", "xlm-roberta", "camembert"),
    config_class=EncoderConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
