"""One table as HTML, Markdown and text."""

from headwork.tables import Table

TABLE = Table(("", "accuracy"), (("short|long", 0.5), ("<b>", 1234.5)))


def test_markdown_survives_a_bar():
    assert TABLE.markdown().splitlines() == [
        "|  | accuracy |",
        "| --- | --- |",
        r"| short\|long | 0.5 |",
        "| <b> | 1,234 |",
    ]


def test_text_has_numbers_on_the_right():
    assert TABLE.text().splitlines() == ["            accuracy", "short|long       0.5", "<b>            1,234"]


def test_html_escapes():
    assert "&lt;b&gt;" in TABLE.html()
