"""How large a part of a request is: bytes of its canonical JSON, whatever the spelling sent."""

from typing import Any

import rfc8785

from functions.web.faults import Fault, Path


def size_fault(path: Path, value: Any, limit_bytes: int) -> Fault | None:
    """Return what is wrong with the size of a value, None when it is within the limit."""
    try:
        size = len(rfc8785.dumps(value))
    except ValueError as exc:
        # CanonicalizationError, or UnicodeEncodeError for half a surrogate pair in a key.
        return Fault(path=path, detail=f"has no canonical form (RFC 8785): {exc}")
    if size <= limit_bytes:
        return None
    detail = f"must have at most {limit_bytes} bytes as canonical JSON, not {size}"
    return Fault(path=path, detail=detail)
