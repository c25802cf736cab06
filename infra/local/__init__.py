"""The local stack: real emulators, a real model and one process per function, on one machine."""
