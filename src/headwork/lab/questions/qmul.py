"""Queen Mary University of London, Coursework 1: name, what it asks, the answer, where it is done, what is missing."""

QUESTIONS = (
    (
        "1",
        "The dimensions of Q, K, V and of the output for X [768, 6].",
        "All [768, 6]. Tokens are columns, so the weights are softmax(Q'K / sqrt(d_k)) of [6, 6], and the output "
        "V softmax(Q'K / sqrt(d_k))'. (QK' of [768, 768], as printed, compares features.)",
        "`hw.sheets.self_attention`",
    ),
    (
        "2.1",
        "How is self-attention implemented?",
        "Three projections, scores, division by sqrt(d_k), a softmax for each query over the keys, a weighted sum of "
        "the "
        "values.",
        "`hw.sheets.self_attention`, `hw.functional.scaled_dot_product_attention`; docs/guide.md",
    ),
    (
        "2.2",
        "Three applications.",
        "Image classification: 90.5 % of the test images of CIFAR-10. Translation from English to German: BLEU 38.6 on "
        "Multi30k. Sentiment: a small Transformer from scratch gets 83.1 % of the phrases of SST-2 right, counting "
        "words 83.3 %, and a pretrained Transformer 90.4 %: the gain comes from the text that it has read before.",
        "`headwork train cifar10-vit`, `headwork train multi30k`, `headwork train sst2-encoder`; "
        "docs/results.md#recipes; without a download: `headwork train digits-vit`, `headwork train dates`, "
        "`headwork train reviews-encoder`",
    ),
    (
        "2.3",
        "Three advantages over CNNs.",
        "One layer joins any two positions, where convolutions of size K need (n - 1)/(K - 1) layers (or dilations). "
        "Attention weights depend on the content, and can be looked at. Fewer assumptions: with enough data, fewer "
        "limits. "
        "(*Not* parallelism: both are parallel over places; nor any length: see the errata.)",
        "claim window-mask-mixes-locally",
    ),
    (
        "3(1)",
        "The shapes of seven variables of the notebook.",
        "tokens [1, 5, 768]; qis_mh, kis_mh, vis_mh, zis_mh [1, 5, 12, 64]; attmat_mh [1, 12, 5, 5]; zis [1, 5, 768].",
        "`headwork trace bert-base --tokens 5`",
    ),
    (
        "3(2)",
        "Curves of accuracy and loss for 10, 30 and 50 epochs.",
        "The training loss keeps falling, the loss on held-out images stops: 0.72, 0.53, 0.52 against 0.26, 0.13, 0.13 "
        "after 10, 30 and 50 epochs (seed 0; label smoothing keeps the first above 0.5). Three runs, two curves each.",
        "`headwork train digits-vit --epochs 10` (30, 50); docs/results.md#10-30-and-50-epochs",
        "on digits: the notebook's data are not at hand",
    ),
)
