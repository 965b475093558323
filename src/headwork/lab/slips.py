"""Slips of the documents that need no measurement of their own, or that another claim measures; and minor ones.

Each is (where, printed, right, measured or derived).
"""

from headwork.lab.catalogue import Document

SLIPS: dict[Document, tuple[tuple[str, str, str, str], ...]] = {
    "NYU": (
        (
            "1.3(c), identity layer",
            r"$q_i^\top k_j$ is a large value when $i = j$ and very negative when $i \ne j$; this results in attention "
            r"weights that are one-hot vectors",
            r"no finite score does: with a lead of $g$ over $n - 1$ other keys, $1/(1 + e^{\beta g}/(n - 1))$ of the "
            r"weight is on those. One-hot is the limit, as 1.1(c) has it, and only if one key leads alone: keys that "
            r"tie share the weight for $\beta = \infty$ too",
            "The error falls as $e^{-\\beta}$ and is 0 for hard attention alone "
            "([identity-and-permutation-layers](identity-and-permutation-layers.md)).",
        ),
        (
            "1.2(a) and 1.3(a), the concatenation",
            r"$H_{\text{concat}} = [H^1, \dots, H^h] \in \mathbb{R}^{hd_v \times n}$",
            r"$[H^1; \dots; H^h]$, one below the other: side by side, as printed, matrices of $d_v \times n$ make "
            r"$d_v \times hn$, which $W_O$ of $hd_v$ columns cannot take",
            "Below one another the shape is that of the sheet ([multi-head-shapes](multi-head-shapes.md)).",
        ),
        (
            "1.3(b), when to use which",
            "absolute codes when word order matters, relative ones when relative positions do",
            "both tell the order of words; absolute codes also tell where in the text a word is",
            "Without positions a permutation of the tokens permutes the outputs; with any of the codes, relative ones "
            "too, it changes them ([order-needs-positions](order-needs-positions.md)).",
        ),
    ),
    "QMUL": (
        (
            "2.1(a) and (b)",
            r"$Q = W^Q X$, and scores from the query $Q$ and the transpose of the key $K^\top$",
            r"$Q^\top K$, as in question 1: with $Q = W^Q X$ tokens are columns, and $QK^\top$ compares features",
            "As in question 1 ([tokens-in-columns](tokens-in-columns.md)).",
        ),
    ),
    "C182": (
        (
            "1(b) i, the last sentence",
            "a softmax is known to have issues with vanishing gradients given large inputs",
            "given large *differences* of its inputs: a constant added to all changes nothing",
            "The Jacobian of softmax(1000, 1000) is that of softmax(0, 0), of norm 1/2; that of softmax(20, 0) has the "
            "norm 4e-9.",
        ),
        (
            "3(a) i, a layer over all tokens",
            "not a good idea because then we have to fix the number of patches",
            "true, but the ViT's table of learned positions fixes it as well, whatever the pooling is, unless it is "
            "interpolated",
            "Made for 10 tokens and given 30, learned positions do not take them "
            "([far-by-attention-or-convolution](far-by-attention-or-convolution.md)).",
        ),
        (
            "3(b), JFT-300M",
            "300 million images, which is 20x bigger than ImageNet",
            "ImageNet has 1.28 million images: 234 times bigger; 20 times is ImageNet-21k with 14 million "
            "(NYU 1.5(d) has the three numbers)",
            "300 / 1.28 = 234; 300 / 14 = 21.",
        ),
        (
            "non-local means, the solution",
            r"$\text{out}_i = a_{ij}v_j$; $\exp(q_i, k_r^\top/\sqrt{d_k})$; $\exp(q_ik_j^\top)$ captures the "
            r"similarity",
            r"$\text{out}_i = \sum_j a_{ij}v_j$; $\exp(q_ik_r^\top/\sqrt{d_k})$; $\exp(q_ik_j^\top/\sqrt{d_k})$",
            "With the sum and the scale it is the kernel smoother, up to rounding "
            "([kernel-smoother](kernel-smoother.md)).",
        ),
        (
            "0.2, the formulas",
            r"slices $X_0, X_1, \dots$ beside $\text{Concat}[\text{head}_1; \dots; \text{head}_k]$ for $h$ heads; "
            r"$\text{MHA}(X, W^q, W^k, W^v)$",
            r"$X_1, \dots, X_h$ and $\text{head}_1, \dots, \text{head}_h$; $W^o$ is an argument too",
            "Notation only.",
        ),
    ),
    "EECS 182": (
        (
            "2(c), line numbers",
            r"Line 5: $\Theta(n_td_{head}h)$, Line 6, 7: $\Theta(n_sd_{head}h)$",
            "lines 5-6 rearrange q, 7-8 k and 9-10 v, in the listing as it stands",
            "Counted in the listing.",
        ),
    ),
}

MINOR: dict[Document, tuple[str, ...]] = {
    "NYU": (
        "1.1(e): index i turns into j in the second and third point",
        "1.1(g): alpha is both the scale and the weights, which are then called A",
        "1.3(b): relative codes for image classification, where 1.5(b) has ViT's absolute ones (both are in use)",
        "1.3(e): 'only previous positions', but the formula has j <= i, the position itself too",
        "1.4(b): 'similarity of the representations': W_q and W_k differ, so it is not symmetric",
        "1.4(d): in a decoder layer the feed-forward network comes after the cross-attention",
        "2: the notebook of Homework 4 is called HW3-VIT",
    ),
    "ETH": (
        "(8): W is a K x K array, and the shifts of (9) that index it are negative too; and Z at pixels outside of "
        "the image is not defined",
        "D_in beside D_i, C_out beside D_out",
        "before (6): 'an query pixel'",
        "2(d): it is a *layer* of a Transformer encoder that can be divided into two halves",
    ),
    "C182": (
        "1(b) ii: 'the issue from 3.?' is that of i",
        "the solution of non-local means is headed 'Justifying Scaled Self-Attention'",
        "1(b): mu is a vector in the problem, and a number in the solution of i",
        "1(b): N(mu, sigma) for a normal distribution of variance sigma^2",
        "1(c) iii: 'how many keys, queries and values' asks for their width",
    ),
    "EECS 182": ("1(a): S_i beside s_i; 'vanishing gradient gradient'", "2(b): 'tarined'", "2(d): 'bottelneck'"),
}
