"""Read a page as a strict reader would: every tag closed in order, every id once, nothing from outside."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "hr", "input", "link", "wbr"}


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> out of order"

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def inside(self, tag: str) -> list[str]:
        return [text for place, text in self.texts if place == tag]

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read_page(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert html.startswith("<!DOCTYPE html>")
    assert reader.open == []
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in reader.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base")
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href", "srcset", "action", "poster"):
                assert value.startswith(("data:image/", "#")), value
                assert not value.startswith("#") or value[1:] in ids
            if name == "style":
                assert "url(" not in value.replace("url(#", "")
    assert "@import" not in html
    return reader
