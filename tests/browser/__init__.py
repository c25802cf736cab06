"""Tests of the console in a real browser; skipped where there is none."""
