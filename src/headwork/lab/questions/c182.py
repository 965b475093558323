"""UC Berkeley, Data C182, Discussion 06: name, what it asks, the answer, where it is done, what is missing."""

QUESTIONS = (
    (
        "1",
        "Background: attention over the states of an RNN (no question).",
        "A query asks all earlier states, instead of what the last one has kept: h = sum_j softmax(score(q, s_j)) s_j. "
        "A recurrent network with additive attention learns to reverse texts of ten tokens in seconds, and its weights "
        "are on the token that it copies; without attention the same training leaves a fifth of the tokens wrong.",
        "`hw.functional.additive_scores`, `hw.layers.AdditiveAttention`; claims kernel-smoother and "
        "long-range-gradients",
    ),
    (
        "0.1",
        "Q, K, V from the embeddings; scores, softmax, weighted sum (no question).",
        "Three linear maps, then three steps: scores, weights, output.",
        "`hw.functional.attention_scores`, `softargmax`, `scaled_dot_product_attention`; docs/guide.md",
    ),
    (
        "1(a)",
        "Attention of many queries in matrix form.",
        "softmax(Q K') V, the softmax along each row; as many queries as one likes.",
        "`hw.functional.scaled_dot_product_attention(q, k, v, beta=1.0)`",
    ),
    (
        "1(b) i",
        "How does Var(q . k) grow with d, and why is that a problem?",
        "As d: the softmax of scores of spread sqrt(d) decides, and its squared Jacobian falls as c_n/(3 sqrt d).",
        "",
    ),
    ("1(b) ii", "Which s keeps Var(q . k / s)?", "s = sqrt(d): both terms of the variance grow as d.", ""),
    ("1(b) iii", "E[q . k].", "mu'mu.", ""),
    (
        "1(b) iv",
        "Var(q . k) exactly.",
        "2 sigma^2 mu'mu + d sigma^4 (the last line of the sheet has a d too many in its first term).",
        "",
    ),
    (
        "non-local means",
        "How does a kernel smoother relate to q, k and v?",
        "It is attention: query x, keys x_i, values y_i, K(q, k) = e^(q . k / sqrt d). A Gaussian kernel of "
        "bandwidth h has "
        "the key (x_i, -x_i^2/2), the query (x, 1) and beta = 1/h^2.",
        "",
    ),
    (
        "0.2",
        "Multi-head attention by slices of the token (no question).",
        "A head of a slice is a head of the whole token with zeros outside its block: fewer parameters, and scores "
        "that "
        "know their slice alone.",
        "`hw.layers.SplitHeadAttention`, `hw.choices.SplitHeads`",
    ),
    (
        "1(c) i",
        "The relation of d_k and d_q.",
        "Equal *widths*, d_k = d_q, for the product of queries and keys; their numbers may differ.",
        "",
    ),
    (
        "1(c) ii",
        "The cost of self-attention for n tokens.",
        "2nd(2 d_q + d_v) for the projections, 2 n^2 d_q for the scores, 2 n^2 d_v for the mix (and 2 n d_v d for the "
        "output). With the output n^2 leads for n > 2d only, whatever d_q and d_v are; without it, as the sheet "
        "counts, for n > d (2 d_q + d_v)/(d_q + d_v), which is 1.5 d if d_q = d_v.",
        "`headwork cost`",
    ),
    (
        "1(c) iii",
        "h heads with as many parameters: how many of what, and which advantage?",
        "Each of width d/h; FLOPs and parameters stay, only the tables of weights are h. The advantage is not in "
        "complexity: heads run side by side, look at different places, and some can be left out after training.",
        "`hw.inspection.ablate`",
    ),
    (
        "2",
        "Encoder architectures: BERT and ViT (figures).",
        "Layers of self-attention and feed-forward networks, the whole sequence at once.",
        "`hw.models.Encoder`, `hw.models.VisionTransformer`; `headwork trace bert-base`, `headwork trace vit-b16`",
    ),
    (
        "3(a)",
        "How does an encoder classify?",
        "A layer over all tokens (fixes their number: another image size is refused), a class token, the mean (GAP), "
        "or "
        "attention with a learned query (MAP). On small digits the last three read about equally well; early in "
        "training on CIFAR-10 the class token is 2.4 points ahead of GAP and 2.2 ahead of MAP.",
        "`hw.sheets.FullyConnected`, `CLS`, `GAP`, `MAP`; `headwork train digits-vit --pooling map`; "
        "docs/results.md#pooling-and-positions; docs/sheets.md",
    ),
    (
        "3(b)",
        "Transformer encoders against CNNs.",
        "CNNs know that near pixels belong together and that a stroke means the same everywhere: with few images they "
        "lead. (JFT-300M is 234 times ImageNet's 1.28 million images, not 20.) They are compact: at about 91 % of "
        "CIFAR-10 the ResNet has 0.4 times the weights of the ViT, at 99 % of digits 0.14 times. Memory is another "
        "matter: while it classifies, an image takes more of it in both ResNets than in the ViTs beside them.",
        "docs/results.md#a-cnn-beside-a-vit-of-equal-accuracy; "
        "docs/results.md#inductive-bias-a-resnet-and-a-transformer-on-more-and-more-images; `headwork cost vit-b16`",
        "the large-data half cannot be measured here",
    ),
    (
        "4",
        "What is cross-attention?",
        "Queries from one sequence, keys and values from another: n_1 x n_2 weights, n_1 outputs. Lengths and widths "
        "of "
        "the two may differ; only projected queries and keys have to match.",
        "`hw.layers.MultiHeadAttention(d_memory=)`",
    ),
)
