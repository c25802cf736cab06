"""Tests of Empanel: unit, contract, faults, e2e, browser, bench, and the stub provider."""
