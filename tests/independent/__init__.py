"""Servers that nobody here wrote, asked through our own providers: `make independent`."""
