"""The objects on Cloud Storage."""

from functions.adapters.gcs.objects import GcsObjects

__all__ = ["GcsObjects"]
