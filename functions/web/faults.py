"""One broken rule of a request: where it is, as a path and as a JSON pointer, and what is wrong."""

from dataclasses import dataclass

Path = tuple[str | int, ...]

MAX_FAULTS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A rule and the place that breaks it; the empty path is the whole document."""

    path: Path
    detail: str

    @property
    def pointer(self) -> str:
        """The place as a JSON pointer in its string form (RFC 6901)."""
        return pointer(self.path)


def pointer(path: Path) -> str:
    """Return a path as a JSON pointer: `~` is written `~0` and `/` is written `~1`."""
    return "".join(f"/{_escaped(str(part))}" for part in path)


def path_of(fragment: str) -> Path:
    """Return the member names that a JSON pointer names; array positions stay text."""
    return tuple(_unescaped(part) for part in fragment.split("/")[1:])


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
