"""What a model of text should beat: words and pairs of words, counted, and a linear classifier."""

from headwork.data.reviews import LabelledTexts
from headwork.extras import need


def bag_of_words_accuracy(train: LabelledTexts, test: LabelledTexts) -> float:
    """The share of test texts that scikit-learn's logistic regression gets right from TF-IDF counts.

    Words, weights and classifier come from `train` only; the settings are fixed.

    >>> train = LabelledTexts(["a good film", "so good", "a bad film", "so bad"] * 2, [1, 1, 0, 0] * 2)
    >>> bag_of_words_accuracy(train, LabelledTexts(["good actors", "bad actors"], [1, 0]))
    1.0
    """
    need("sklearn")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    count = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    classifier = make_pipeline(count, LogisticRegression(C=10, solver="liblinear", random_state=0))
    return float(classifier.fit(*train).score(*test))
