"""llmock's control interface: script faults, read what the server saw and thinks of the client."""

from typing import Any, Self

import httpx


class Llmock:
    """A running llmock."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._http.close()

    def reset(self) -> None:
        """Forget all requests and scripted faults."""
        self._http.post("/_llmock/reset").raise_for_status()

    def script(self, *behaviors: dict[str, Any]) -> None:
        """Queue faults and replies; each serves the next request that matches."""
        answer = self._http.post("/_llmock/scenario", json={"behaviors": list(behaviors)})
        assert answer.is_success, answer.text

    def requests(self) -> list[dict[str, Any]]:
        """All requests so far, oldest first."""
        found: list[dict[str, Any]] = self._http.get("/_llmock/requests").json()["requests"]
        return found

    def verdict(self) -> dict[str, Any]:
        """What llmock found wrong with the client."""
        found: dict[str, Any] = self._http.get("/_llmock/verdict").json()
        return found


def fail(status: int, **more: Any) -> dict[str, Any]:
    """Return a fault: an HTTP error in the words of whichever provider is asked."""
    return {"type": "fail", "status": status, **more}


def reply(text: str, **more: Any) -> dict[str, Any]:
    """Return a scripted answer."""
    return {"type": "reply", "text": text, **more}
