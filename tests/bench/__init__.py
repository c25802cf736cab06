"""Measurements, run by hand or by `make bench`; figures are ratios within one run."""
