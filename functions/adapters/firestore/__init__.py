"""The ledger on Firestore in Native mode."""

from functions.adapters.firestore.ledger import FirestoreLedger

__all__ = ["FirestoreLedger"]
