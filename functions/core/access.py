"""Who may act: tenants' names, roles, and API keys as records. Pure.

A key's text is known to its holder alone: the record stands under its hash. 256 random bits need no
slow hash, since there is nothing to guess from.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

from functions.core import versions

SUBMITTER, OPERATOR = "submitter", "operator"
ROLES = (SUBMITTER, OPERATOR)  # each may do what those before it may

TENANT_RULE = "must be 1 to 63 lower-case letters, digits or '-', and not begin with '-'"
NAME_RULE = "must be 1 to 100 printable characters, without spaces at its ends"
ID_CHARACTERS = 16
MAX_NAME_CHARACTERS = 100
# Tenants are parts of document IDs and of objects' names.
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def is_tenant(name: str) -> bool:
    """Whether a tenant can have this name."""
    return _TENANT.fullmatch(name) is not None


def is_key_name(name: str) -> bool:
    """Whether a key can have this name: one line that a log can show."""
    return 1 <= len(name) <= MAX_NAME_CHARACTERS and name.isprintable() and name == name.strip()


def includes(role: str, least: str) -> bool:
    """Whether a role may do what `least` may; one that is not known may do nothing."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(least)


def key_hash(key: str) -> str:
    """Return the name of a key's record: the SHA-256 of its text, in lower-case hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def key_id(digest: str) -> str:
    """Return what people call a key by: the beginning of its hash."""
    return digest[:ID_CHARACTERS]


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey:
    """A key as recorded; `last_used_at` lags by up to an hour."""

    tenant: str
    role: str
    name: str = ""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    v: int = versions.API_KEY.written

    def admits(self, now: datetime) -> bool:
        """Whether the key opens anything now: neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
