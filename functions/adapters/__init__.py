"""The ports on real services and in memory; only adapters and providers know a vendor."""
