"""Which URLs a webhook may have, and which addresses are the open internet."""

from ipaddress import ip_address

import pytest

from functions.core.webhooks import UrlRefused, is_public, read_receiver

ACCEPTED = [
    ("https://example.com/hook", "example.com", 443, "/hook"),
    ("https://example.com", "example.com", 443, "/"),
    ("https://Example.COM:443/a?b=c", "example.com", 443, "/a?b=c"),
    ("https://hooks.example.co.uk:8443/", "hooks.example.co.uk", 8443, "/"),
    ("https://xn--bcher-kva.example/%20", "xn--bcher-kva.example", 443, "/%20"),
    ("https://8.8.8.8/", "8.8.8.8", 443, "/"),
    ("https://[2606:4700::1111]/", "2606:4700::1111", 443, "/"),
]

REFUSED = [
    "http://example.com/hook",
    "HTTP://example.com/hook",
    "ftp://example.com/",
    "//example.com/",
    "example.com",
    "https://",
    "https:///hook",
    "https://example.com:80/",
    "https://example.com:22/",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://user@example.com/",
    "https://user:pass@example.com/",
    "https://@example.com/",
    "https://example.com@127.0.0.1/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com/#part",
    "https://example.com/a b",
    "https://exa\u00admple.com/",
    "https://b\u00fccher.example/",
    "https://example.com/\r\nX: y",
    "https://localhost/",
    "https://LOCALHOST:8443/",
    "https://localhost./",
    "https://a.localhost/",
    "https://intranet/",
    "https://metadata.google.internal/computeMetadata/v1/",
    "https://printer.local/",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0177.0.0.1/",
    "https://127.0.0.1./",
    "https://0.0.0.0/",
    "https://10.1.2.3/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.100.100.200/",
    "https://255.255.255.255/",
    "https://224.0.0.1/",
    "https://[::]/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:169.254.169.254]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fd00:ec2::254]/",
    "https://[fc00::1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[ff02::1]/",
    "https://[::1/",
    "http://127.0.0.1:9000/",
]


@pytest.mark.parametrize(("url", "host", "port", "path"), ACCEPTED)
def test_an_https_address_of_the_open_internet_is_accepted(
    url: str, host: str, port: int, path: str
) -> None:
    """Host, port and path are read as they will be connected to."""
    receiver = read_receiver(url)
    assert (receiver.host, receiver.port, receiver.path) == (host, port, path)
    assert receiver.tls


@pytest.mark.parametrize("url", REFUSED)
@pytest.mark.parametrize("allow_loopback", [False, True])
def test_everything_else_is_refused(url: str, allow_loopback: bool) -> None:
    """No form of a private address, another scheme or another port is accepted."""
    if allow_loopback and url == "http://127.0.0.1:9000/":
        assert not read_receiver(url, allow_loopback=True).tls
        return
    with pytest.raises(UrlRefused):
        read_receiver(url, allow_loopback=allow_loopback)


@pytest.mark.parametrize(
    "text",
    ["8.8.8.8", "203.0.114.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"],
)
def test_public_addresses(text: str) -> None:
    """Addresses that the internet routes are public, whichever form they come in."""
    assert is_public(ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "198.18.0.1",
        "192.0.2.1",
        "224.0.0.251",
        "0.0.0.0",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fec0::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
    ],
)
def test_other_addresses(text: str) -> None:
    """Private, loopback, link-local, shared, reserved and multicast addresses are not public."""
    assert not is_public(ip_address(text))
