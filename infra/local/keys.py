"""The stack's one API key, an operator's, recorded as its hash only; and its webhook secret."""

import base64
import secrets
from datetime import UTC, datetime
from typing import Any

from functions.core.access import OPERATOR, ApiKey, key_hash
from functions.core.documents import to_document
from functions.core.times import rfc3339
from infra.local.errors import StackError
from infra.local.network import loopback_client
from infra.local.targets import TENANT


def new_webhook_secret() -> str:
    """A secret that notifications are signed with, in the form of Standard Webhooks."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def key_record(created_at: datetime) -> dict[str, Any]:
    """The document of the key's record."""
    record = ApiKey(tenant=TENANT, role=OPERATOR, name="local stack", created_at=created_at)
    return to_document(record)


async def record_api_key(firestore: str, project: str, key: str) -> None:
    """Write `api_keys/{hash}` through the emulator's REST interface.

    REST, so that the supervisor needs no Firestore client: it writes one document in its life.
    """
    record = key_record(datetime.now(UTC))
    documents = f"http://{firestore}/v1/projects/{project}/databases/(default)/documents"
    async with loopback_client() as client:
        response = await client.post(
            f"{documents}/api_keys",
            params={"documentId": key_hash(key)},
            headers={"Authorization": "Bearer owner"},  # the emulator's word for: skip the rules
            json={"fields": {name: _typed(value) for name, value in record.items()}},
        )
    if not response.is_success:
        raise StackError(f"the API key cannot be recorded: {response.text}")


def _typed(value: Any) -> dict[str, str]:
    """A value as Firestore's REST interface writes it."""
    match value:
        case int():
            return {"integerValue": str(value)}
        case datetime():
            return {"timestampValue": rfc3339(value)}
        case _:
            return {"stringValue": str(value)}
