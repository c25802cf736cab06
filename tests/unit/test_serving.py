"""The server's own settings."""

import httpx

from functions.serving import KEEP_ALIVE_SECONDS


def test_the_server_keeps_connections_longer_than_its_clients() -> None:
    """A client that ends an idle connection first never sends into one that is being closed."""
    kept = httpx.Limits().keepalive_expiry
    assert kept is not None
    assert kept < KEEP_ALIVE_SECONDS
