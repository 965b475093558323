"""UC Berkeley, EECS 182, Final Review: name, what it asks, the answer, where it is done, what is missing."""

QUESTIONS = (
    (
        "Figure 1",
        "The Transformer (no question).",
        "Encoder and decoder with cross-attention, post-norm.",
        "`hw.models.EncoderDecoder`, `headwork trace transformer-base`",
    ),
    (
        "1 listing",
        "scaled_dot_product_attention(q, k, v, key_padding_mask, causal).",
        "softmax(q k' / sqrt(d_head)) v behind both masks, True = padding. Here a query that sees nothing gets zeros "
        "(the "
        "listing: NaN), and the causal mask is aligned to the last key (the listing: to the first).",
        "`hw.sheets.scaled_dot_product_attention`",
    ),
    (
        "1(a)",
        "Why divide by sqrt(d_head), and what if not?",
        "Var(q . k) = d; without the division the softmax decides and E|J|^2 = c_n/(3 sqrt d) falls; with it the "
        "Jacobian "
        "stays that of standard normal scores. Where a_max = 1 - eps, |J|^2 <= 4 eps^2, sharper than n^2 eps^2.",
        "",
    ),
    (
        "2 listing",
        "MHA.forward(q, k, v, key_padding_mask, causal).",
        "Three projections, heads, the listing above, one output map; equal to PyTorch's nn.MultiheadAttention.",
        "`hw.sheets.MHA`",
    ),
    (
        "2(a) (i)",
        "The receptive field of one hard head after n layers.",
        "At most 2^n: a token knows itself and one other.",
        "",
    ),
    ("2(a) (ii)", "The same with two heads.", "At most 3^n.", ""),
    (
        "2(a) (iii)",
        "The same with k heads.",
        "At most (k + 1)^n, reached by heads that look h (k + 1)^l tokens back. If all layers look alike, at most "
        "C(n + k, k), the ways to add up n distances of k and 0; kn + 1 if the distances are 1 to k.",
        "",
    ),
    (
        "2(b) (i)",
        "Which masks for an encoder (BERT)?",
        "The padding mask in self-attention, and none in time. (Pooling by the mean has to leave the padding out, "
        "too.)",
        "`hw.models.Encoder`, `hw.layers.MeanPooling`",
    ),
    (
        "2(b) (ii)",
        "For a decoder (GPT)?",
        "The causal mask; the padding mask only with padding on the left.",
        "`hw.models.Decoder`",
    ),
    (
        "2(b) (iii)",
        "For an encoder-decoder (T5)?",
        "The padding of the source in the encoder *and* in cross-attention; causal in the decoder.",
        "`hw.models.EncoderDecoder`",
    ),
    (
        "2(c)",
        "The complexity of multi-head attention.",
        "4 (n_t + n_s) d^2 FLOPs for the projections and 4 n_t n_s d for scores and mixing, d = h d_head.",
        "`headwork cost`, `hw.inspection.cost`",
    ),
    (
        "2(d)",
        "The bottleneck for short and for long sequences.",
        "Projections for n < 2d, attention for n > 2d.",
        "`headwork cost` says from how many tokens on attention overtakes",
    ),
    (
        "3(a)",
        "What does an output of layer norm, of batch norm, depend on?",
        "Layer norm: (i) and (iii), its row. Batch norm in training: (i) and (ii), its column; at inference (i) alone.",
        "`hw.functional.layer_norm`, `hw.functional.batch_norm`",
    ),
    (
        "3(b)",
        "|y - beta 1| = gamma sqrt(d).",
        "z'1 = 0 and |z|^2 = d, so |gamma| sqrt(d), for any x whose entries are not all the same.",
        "`hw.layers.LayerNorm`",
    ),
)
