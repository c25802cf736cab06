"""A page as a browser reads it: elements with their attributes and texts, forms and fields."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"input", "br", "meta", "link", "img", "hr"})


@dataclass(kw_only=True)
class Element:
    """One element and what is in it."""

    tag: str
    attributes: dict[str, str]
    children: "list[Element | str]" = field(default_factory=list)

    def all(self, tag: str | None = None) -> "Iterator[Element]":
        """Yield the elements inside, of one tag or of all."""
        for child in self.children:
            if isinstance(child, Element):
                if tag in (None, child.tag):
                    yield child
                yield from child.all(tag)

    @property
    def text(self) -> str:
        """The text inside, spaces made single."""
        parts = (child if isinstance(child, str) else child.text for child in self.children)
        return " ".join(" ".join(parts).split())

    def one(self, tag: str, **attributes: str) -> "Element":
        """Return the only element inside with these attributes."""
        [found] = [
            element
            for element in self.all(tag)
            if all(element.attributes.get(name) == value for name, value in attributes.items())
        ]
        return found

    def fields(self) -> dict[str, str]:
        """Return what a form would send when nothing is changed."""
        sent = {e.attributes["name"]: e.attributes.get("value", "") for e in self.all("input")}
        texts = {e.attributes["name"]: "".join(map(str, e.children)) for e in self.all("textarea")}
        return {**sent, **texts}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element(tag="", attributes={})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag=tag, attributes={name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def finish(self) -> Element:
        self.close()
        assert self._open == [self.root], f"<{self._open[-1].tag}> is never closed"
        return self.root


def read_page(text: str) -> Element:
    """Return a page; every element must be closed where it was opened."""
    reader = _Reader()
    reader.feed(text)
    return reader.finish()
