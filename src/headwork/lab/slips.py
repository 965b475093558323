"""Slips of the documents that need no measurement of their own, or that another claim measures; and minor ones.

Each is (where, printed, right, measured or derived).
"""

from headwork.lab.catalogue import Document

SLIPS: dict[Document, tuple[tuple[str, str, str, str], ...]] = {
    "C182": (
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
        "D_in beside D_i, C_out beside D_out",
        "before (6): 'an query pixel'",
        "2(d): it is a *layer* of a Transformer encoder that can be divided into two halves",
    ),
    "C182": (
        "1(b) ii: 'the issue from 3.?' is that of i",
        "the solution of non-local means is headed 'Justifying Scaled Self-Attention'",
        "1(b): mu is a vector in the problem, and a number in the solution of i",
    ),
    "EECS 182": ("1(a): S_i beside s_i; 'vanishing gradient gradient'", "2(b): 'tarined'", "2(d): 'bottelneck'"),
}
