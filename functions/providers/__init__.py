"""Calls to model providers: one module per dialect, one HTTP client."""
