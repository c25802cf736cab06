"""Tests of one part at a time, without emulators."""
