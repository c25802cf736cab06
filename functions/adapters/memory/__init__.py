"""The ports in one process: for unit and fault tests, and for a stack without emulators.

They keep the rules of the real services that the steps rely on (server time, preconditions,
create-only objects, redelivery) and none of their durability.
"""

from functions.adapters.memory.ledger import MemoryLedger
from functions.adapters.memory.objects import MemoryObjects
from functions.adapters.memory.publisher import Delivery, MemoryPublisher

__all__ = ["Delivery", "MemoryLedger", "MemoryObjects", "MemoryPublisher"]
