"""Empanel: ask several models the same question, keep every answer that was paid for."""
