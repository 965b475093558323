"""ETH Zürich, Assignment 6: name, what it asks, the answer, where it is done, what is missing."""

QUESTIONS = (
    (
        "(1)-(3)",
        "Definitions: self-attention, scores, several heads (no question).",
        "Concatenation comes before W_out (a slip in (3)); D_out may differ from D_i.",
        "`hw.functional.scaled_dot_product_attention(beta=1)`, `hw.layers.MultiHeadAttention(d_head=, d_value=, "
        "d_out=)`",
    ),
    (
        "1(a.1)",
        "How many parameters has a multi-head layer with N_h heads?",
        "N_h (2 D_i D_hid + D_i D_o + D_o D_out) + D_out.",
        "`headwork cost`",
    ),
    (
        "1(a.2)",
        "(1) and (3) for one query pixel q.",
        "(1): sum_k softmax(A_q)_k Z_k W_v. (3): sum_h (sum_k softmax(A_q^(h))_k Z_k) W_v^(h) W_out^(h) + b_out, "
        "with the "
        "block of rows W_out^(h) of head h.",
        "",
    ),
    (
        "(4), (5)",
        "Absolute positions, four terms (no question).",
        "(Z + P) W_q W_k' (Z + P)' is a sum of four tables; the last is the same for every input. Without P "
        "self-attention is "
        "*equivariant*, not invariant.",
        "`hw.functional.absolute_scores`",
    ),
    (
        "(6)",
        "Relative positions, four terms (no question).",
        "Positions enter by delta = q - k alone: move the image, and the scores move with it.",
        "`hw.functional.relative_scores`",
    ),
    (
        "1(b.1)",
        "Put (7) into (6).",
        "A = v' r_delta = -alpha (|delta|^2 - 2 Delta . delta); the other three terms are 0. (Needs D_hid = D_p = 3.)",
        "`hw.functional.gaussian_vectors`, `hw.functional.quadratic_codes`",
    ),
    (
        "1(b.2)",
        "The cost of absolute and of Gaussian encoding, in O().",
        "Absolute: O(N D^2 + N^2 D). Gaussian with a table of scores: scores N^2 D_p instead of N^2 D and one "
        "projection "
        "instead of three, but mixing the values stays: O(N D^2 + N^2 D) too. By rows and columns: O(N D^2 + N^1.5 D).",
        "`hw.inspection.position_costs`; docs/convolution.md",
    ),
    (
        "(8), (9)",
        "Convolution and its shifts (no question).",
        "Delta_K for even K is lopsided: -K/2 has no partner, which Theorem 1 stumbles over.",
        "",
    ),
    (
        "Main Theorem",
        "K^2 heads express any K x K convolution (to be proven).",
        "True for heads at k = q + f(h) of width D_o >= min(D_in, D_out), to any accuracy; narrower heads leave "
        "the singular values beyond D_o.",
        "`hw.convert.attention_from_convolution`; docs/convolution.md",
    ),
    (
        "1(c.1)",
        "W^(h), and the layer for one q.",
        "W^(h) = W_v^(h) W_out^(h); sum_h (sum_k softmax(A_q^(h))_k Z_k) W^(h) + b_out.",
        "",
    ),
    (
        "1(c.2)",
        "Theorem 1: with (10) this is a convolution.",
        "(10) as printed, f(h) = q - k: sum_h Z_(q - f(h)) W^(h) + b, which is (8) with W^(h) = W_(-f(h)) for odd K, "
        "where -Delta_K = Delta_K; for even K a share 1 - ((K - 1)/K)^2 of the kernel is seen by no head. With "
        "f(h) = k - q: sum_h Z_(q + f(h)) W^(h) + b, which is (8) with W^(h) = W_f(h) for every K.",
        "",
    ),
    (
        "1(d.1)",
        "The limit (13) for delta = Delta and delta != Delta.",
        "1 and 0: the softmax is e^(-alpha |delta - Delta|^2) / sum, and every other exponent is at least alpha lower; "
        "the target misses 1 by about 4 e^-alpha.",
        "docs/convolution.md, docs/limit.png",
    ),
    (
        "1(d.2)",
        "For which c does (12) hold?",
        "c = -|Delta|^2, by completing the square; the softmax does not feel it.",
        "",
    ),
    (
        "1(e.1)",
        "For which padding sizes and values?",
        "Bare heads are the convolution with *replicate* padding; for as many outputs as pixels, by (9), of size "
        "floor(K/2) before and floor((K - 1)/2) after, which for odd K are both (K - 1)/2. Zeros, "
        "reflection or wrapping need tokens for the frame, or scores that know them.",
        "`hw.convert.attention_from_convolution`",
    ),
    (
        "1(e.2)",
        "Dilation?",
        "Yes: head h looks at d f(h); any d, up to the size of the image, beyond which a head finds the border only.",
        "",
    ),
    (
        "1(e.3)",
        "Stride?",
        "Not with one output for each pixel; but the strided output is every s-th of the unstrided one: ask fewer "
        "queries.",
        "",
    ),
    (
        "2(a)",
        "AbsolutePositionalEmbedding, RelativePositionalEmbedding, both visualisations, verify_limit.",
        "The classes, their pictures drawn from the modules, and the limit through RelativePositionalEmbedding: the "
        "weight at Delta goes to 1, all others to 0. In hw.sheets Delta = q - k as on the sheet; the centres of "
        "hw.layers are k - q.",
        "`hw.sheets.AbsolutePositionalEmbedding`, `hw.sheets.RelativePositionalEmbedding`, "
        "`hw.sheets.visualize_abs_positional_embedding`, `hw.sheets.visualize_rel_positional_embedding`, "
        "`hw.sheets.verify_limit`",
    ),
    (
        "2(b)",
        "Two GELUs and their difference.",
        "x Phi(x), and with tanh; at most 0.0004733 apart, at x = 2.70 and -2.70.",
        "`hw.sheets.gelu`, `hw.sheets.gelu_tanh`, `hw.sheets.visualize_gelus`",
    ),
    (
        "2(c)",
        "Layer normalisation.",
        "Mean 0 and variance s^2/(s^2 + eps) for each token alone, with d and not d - 1.",
        "`hw.sheets.LayerNorm`",
    ),
    (
        "2(d)",
        "BertFFN, the second half of a layer.",
        "norm(x + dropout(W2 gelu(W1 x + b1) + b2)); equal to Hugging Face's BertIntermediate and BertOutput.",
        "`hw.sheets.BertFFN`",
    ),
    (
        "2(e)",
        "Train, watch the heads in TensorBoard: what moves, and what would support the Main Theorem?",
        "On CIFAR-10, with nine heads in each of six layers: the first two layers move towards the query and become "
        "sharp (median alpha 5.5 and 2.8, from 1). The next three look 3 to 5 patches away, softly. The last sees "
        "nearly the whole image. On digits, over ten seeds: heads move more the later their layer is. The first of "
        "three layers keeps its distance from the query, the other two move away from it. Nearly all heads of the last "
        "layer become softer; in the first two some become sharper and some softer. In support of the theorem one "
        "would expect a head on each shift of a K x K square, with alpha growing. The first layer on CIFAR-10 comes "
        "nearest, with heads on six of the nine places of a 3 x 3 kernel. It is not that convolution: with every head "
        "on its nearest patch alone, 90.7 % of the test images become 77.7 %. Heads that have a convolution to learn "
        "do as the theorem says.",
        "`headwork train cifar10-gaussian`, `headwork train digits-gaussian` (TensorBoard: heads/layers.L/head H/row, "
        "column, width); docs/results.md#where-heads-go-on-cifar-10; docs/convolution.md",
        "CIFAR-10 with width 48 instead of the paper's 400, which would take about 50 hours",
    ),
)
