"""Failures that users of such systems have reported in public, each kind kept from coming back."""
