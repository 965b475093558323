"""New York University, Homework 4: name, what it asks, the answer, where it is done, what is missing."""

QUESTIONS = (
    (
        "1.1(a)",
        "The shapes of S = K'Q, of the weights and of H = V alpha.",
        "With Q d x n, K d x m and V t x m: S and alpha are m x n (keys x queries), H is t x n (n x t, as printed, "
        "is a "
        "slip).",
        "`hw.functional.attention_weights`",
    ),
    (
        "1.1(b)",
        "What does beta do, and which value is convenient?",
        "It sets the entropy of the weights: ln n - beta^2 d / 2 for random queries and keys, until beta sqrt(d) = "
        "sqrt(2 ln n). With beta = 1/sqrt(d) the entropy is ln n - 1/2 at every width.",
        "`hw.functional.softargmax(scores, beta)`",
    ),
    (
        "1.1(c)",
        "When is a value preserved?",
        "When its score leads by much more than ln(n)/beta: its share is 1/(1 + (n - 1) e^(-beta g)); exactly for "
        "beta = inf, hard attention. Around attention a residual connection keeps x whatever the weights are: "
        "x + h; a gate keeps the share it opens to.",
        "`hw.functional.softargmax(scores, beta=math.inf)`; residual connections: `hw.layers.EncoderLayer`",
    ),
    (
        "1.1(d)",
        "When are values diluted?",
        "When no score leads, or beta -> 0: h = mean + (beta/n) sum (s_j - mean s) v_j + O(beta^2). Whatever keeps "
        "scores close does so too: queries and keys times c are beta times c^2 (weight decay of W_q and W_k leads to "
        "c < 1). Dropout of the weights does not: their mean over the draws is what they were.",
        "`hw.functional.softargmax(scores, beta)`",
    ),
    (
        "1.1(e)",
        "What does a perturbed key change?",
        "Every output: dh_i/dk_j = beta alpha_ij (v_j - h_i) q_i'. The other weights together give up what alpha_ij "
        "gains.",
        "",
    ),
    (
        "1.1(f)",
        "What does a perturbed query change?",
        "Its own output alone: dh_i/dq_i = beta sum_j alpha_ij (v_j - h_i) k_j'.",
        "",
    ),
    (
        "1.1(g)",
        "What happens if one key is scaled up?",
        "It takes over the queries with a positive dot product (half of random ones) and vanishes for the others: "
        "weight 1/(1 + e^(L - a s)).",
        "",
    ),
    (
        "1.2(a)",
        "Multi-head attention in columns, step by step.",
        "S^i m x n, alpha^i m x n, H^i t/h x n, joined t x n, H = W_O H t x n, with 2 d^2 + 2 t^2 weights whatever h "
        "is.",
        "`hw.sheets.MultiHeadAttention(d, t, n_heads)(Q, K, V)`; in rows `hw.layers.MultiHeadAttention`",
    ),
    (
        "1.2(b)",
        "What have heads in common with the filters of a CNN?",
        "Both run in parallel and add up; both share their weights over all positions. For one channel, a head that "
        "looks by position is a filter of one sign, and two such heads make any filter. For several channels a head is "
        "one pattern of places times one matrix, so H heads make filters of rank H. Of a random filter with 5 taps "
        "from 3 channels to 3, two heads miss at least 28 % of the squared norm on average (Eckart and Young); five "
        "heads, one for each tap, miss nothing. Heads can choose where to look from the content, filters cannot.",
        "weight sharing: claims feed-forward-is-1x1-convolution and order-needs-positions",
    ),
    (
        "1.3(a)",
        "The shapes of self-attention.",
        "As 1.2(a) with d = t = e and n = m: S^i n x n, H^i e/h x n, H e x n; 4 e^2 weights.",
        "`hw.layers.MultiHeadAttention(e, h)(x)`",
    ),
    (
        "1.3(b)",
        "What are positional encodings; absolute or relative, and when?",
        "Without them self-attention is equivariant: order is invisible. Absolute codes are added to the tokens and "
        "know "
        "where the text stands; relative ones enter the scores by i - j and do not change when it moves: take them "
        "where "
        "only distances matter, or lengths grow.",
        "`hw.choices.SinusoidalPositions`, `LearnedPositions`, `RotaryPositions`, `AlibiPositions`, `BucketPositions`, "
        "`RelativePositions`",
    ),
    (
        "1.3(c)",
        "When is self-attention an identity, when a permutation?",
        "If each query's score leads for one key alone, by g over all others: that key gets the weight "
        "1/(1 + (n - 1) e^(-beta g)), which is 1 for beta = inf only. It needs "
        "positions in queries and keys (an identity also works by content for tokens of equal length), and "
        "W_O [W_V^1; ...; W_V^h] = I.",
        "",
    ),
    (
        "1.3(d)",
        "Self-attention as a convolution.",
        "A window of radius r mixes 2r + 1 tokens; with scores of the shift alone it is a convolution with the kernel "
        "softmax(b); L layers reach 2rL + 1 tokens. On images: one head for each kernel position (ETH).",
        "`hw.masks.window`, `hw.convert.attention_from_convolution`",
    ),
    (
        "1.3(e)",
        "What does real-time speech recognition need?",
        "A causal mask before the softmax: no output depends on a later token, and a stream read in chunks gives "
        "what the "
        "whole gives. (The printed mask is for scores queries x keys.)",
        "`hw.masks.causal`, `hw.masks.chunked`, caches: docs/guide.md",
    ),
    (
        "1.4(a)",
        "How does the Transformer differ from RNNs and LSTMs?",
        "A token reaches any other in one step instead of one per token in between; the gradient of recurrence is "
        "rho^distance, of an LSTM the product of its gates, of attention with equal weights 1/n at every distance. "
        "Order has to be added by positions. Training is faster where there are many processors: a layer has 6 "
        "products in order, an LSTM n, one for each token. Writing takes n steps with both. On one core the work "
        "decides: for 16 texts of 64 to 1,024 tokens the LSTM takes a third to half of the time of a Transformer layer "
        "of the same width and size.",
        "docs/results.md#an-lstm-beside-a-transformer-layer",
    ),
    (
        "1.4(b)",
        "What is self-attention, and why is it important?",
        "A mean of the values of all positions, weighted by the softmax of q_i . k_j (not symmetric: W_q != W_k). One "
        "layer joins any two positions, and all are computed at once.",
        "docs/guide.md, `headwork trace`",
    ),
    (
        "1.4(c)",
        "Multi-head attention: mechanism and benefits.",
        "The output is a sum over heads, each with its own W^(h) = W_v W_out; a single head averages with positive "
        "weights, "
        "several can take differences, and look at several places.",
        "",
    ),
    (
        "1.4(d)",
        "The position-wise feed-forward network: mechanism and purpose.",
        "Two 1 x 1 convolutions with a ReLU between, each token for itself. Without the activation the two maps "
        "would be "
        "one; the network is the non-linearity that attention, a mean of values, lacks.",
        "`hw.layers.FeedForward`",
    ),
    (
        "1.4(e)",
        "What helps against exploding and vanishing gradients, and why?",
        "Through L plain layers the squared gradient is g^(2L), with residuals alone (1 + g^2)^L, with post-norm about "
        "1, with pre-norm about 1 + L g^2, up to terms of order L/d: the norm divides by just what the residual sum "
        "has added. (Measured for feed-forward layers as they start. That higher learning rates become possible is "
        "from the papers.)",
        "",
    ),
    (
        "1.5(a)",
        "How does a ViT take its input, how a CNN?",
        "As patches, flattened and projected: a convolution with kernel = stride = patch, then attention between them. "
        "A convolution is *equivariant* under shifts, a ViT only under shifts by whole patches (and only without "
        "positions).",
        "`hw.functional.embed_patches`, `embed_patches_by_convolution`",
    ),
    (
        "1.5(b)",
        "Positions in a ViT against sinusoids.",
        "A learned vector for each patch instead of fixed sines and cosines. Learned ones find the 2-D layout of the "
        "patches from images that move. Early in training on CIFAR-10 the fixed ones are ahead: 52.9 % of the test "
        "images, 50.5 % with learned ones and 46.8 % without any.",
        "docs/results.md#pooling-and-positions; `headwork train digits-vit --set model.position=SinusoidalGrid`; "
        "`hw.choices.LearnedGrid`, `SinusoidalGrid`",
    ),
    (
        "1.5(c)",
        "From an image to a class.",
        "Patches, a class token in front, positions, layers, norm of the class token, head. (Here the class token "
        "gets no "
        "position vector of its own: a constant added to a learned vector is part of it. The head is one linear map, "
        "as "
        "the paper has it for fine-tuning; with a hidden layer it is an MLPHead.)",
        "`hw.models.VisionTransformer`, `headwork trace vit-b16`, `hw.sheets.MLPHead`; docs/sheets.md",
    ),
    (
        "1.5(d)",
        "ViT and CNN by the size of the data.",
        "With few images the CNN leads where strokes move about, and most of the lead goes when the pixels are "
        "shuffled: "
        "it is the bias, not the model. On 500 to 45,000 images of CIFAR-10, in the same time, a ResNet leads by 9 to "
        "18 points. That the ViT overtakes on 14 to 300 million images is from the paper.",
        "docs/results.md#inductive-bias-a-resnet-and-a-transformer-on-more-and-more-images",
        "the large-data half cannot be measured here",
    ),
    (
        "2",
        "Fill in the notebook HW3-VIT-Student.ipynb.",
        "The model and its training. Test images right: CIFAR-10 90.5 %, Fashion-MNIST 89.1 %, 5,000 images of MNIST "
        "94.7 %, digits 98.6 % (three seeds).",
        "`headwork train cifar10-vit`, `headwork train fashion-vit`, `headwork train mnist-vit`, `headwork train "
        "digits-vit`; docs/results.md#recipes; docs/quickstart.ipynb",
        "the notebook itself is behind an NYU login, and its data are others",
    ),
)
