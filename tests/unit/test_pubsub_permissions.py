"""How readiness asks Pub/Sub itself for a topic, where the emulator would say too little."""

from typing import Any

import grpc
import pytest
from google.iam.v1 import iam_policy_pb2  # type: ignore[import-untyped]

from functions.adapters import pubsub
from functions.adapters.pubsub import PubsubPublisher
from functions.core.errors import PublishFailed

METHOD = "/google.iam.v1.IAMPolicy/TestIamPermissions"


class _Permissions(grpc.GenericRpcHandler):
    """Answers what may be done at a topic; nothing at any other."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def service(self, details: Any) -> Any:
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._test,
            request_deserializer=iam_policy_pb2.TestIamPermissionsRequest.FromString,
            response_serializer=iam_policy_pb2.TestIamPermissionsResponse.SerializeToString,
        )

    async def _test(self, request: Any, _: Any) -> Any:
        self.asked.append((request.resource, list(request.permissions)))
        allowed = request.permissions if request.resource.endswith("/mine") else []
        return iam_policy_pb2.TestIamPermissionsResponse(permissions=allowed)


async def test_a_topic_is_ready_when_it_may_be_published_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked is the one permission that publishing needs; without it the topic is not ready."""
    permissions = _Permissions()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((permissions,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    publisher = PubsubPublisher("project")
    options = pubsub._LOCAL_OPTIONS

    def channel(_: PubsubPublisher) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)

    monkeypatch.setattr(PubsubPublisher, "_open_channel", channel)
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    try:
        await publisher.check("mine")
        with pytest.raises(PublishFailed, match="not there, or not to be published to"):
            await publisher.check("another")
    finally:
        await publisher.aclose()
        await server.stop(None)
    assert permissions.asked == [
        ("projects/project/topics/mine", ["pubsub.topics.publish"]),
        ("projects/project/topics/another", ["pubsub.topics.publish"]),
    ]
