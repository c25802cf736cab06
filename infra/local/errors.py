"""What can go wrong with the local stack, as exceptions that carry a sentence for the user.

StackError
├── EmulatorsUnavailable   no way to run Google's emulators here
├── ProcessFailed          a process did not start, or ended although the stack needs it
├── PortTaken              the API port asked for is in use
└── AlreadyRunning         another stack runs in the same folder
"""


class StackError(Exception):
    """The stack cannot start or go on; the message says why and what to do."""


class EmulatorsUnavailable(StackError):
    """Neither a running emulator, nor the Google Cloud CLI with Java, nor Docker was found."""


class ProcessFailed(StackError):
    """A process of the stack ended, or never became ready; the message quotes its log."""


class PortTaken(StackError):
    """The API port asked for is in use by another program."""


class AlreadyRunning(StackError):
    """Another stack holds the lock of this folder."""
