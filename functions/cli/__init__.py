"""The command line: a client of the HTTP API, for people and for scripts.

    submit FILE [--key KEY] [--watch]     watch JOB      status JOB
    batch FILE
    report JOB [--partial]                attempts JOB   jobs           cancel JOB
    replay JOB [--watch]
    audit [WINDOW] [--run]                incidents      resolve INCIDENT --note TEXT
    drill [NAME...]
    keys create --tenant T --role R --name N [--expires-days D]    keys list    keys revoke NAME|ID

Exit codes (`exits.Exit`; every `--help` shows them too):

| code | meaning |
|---|---|
| 0 | done; a job that was asked about is open or has succeeded |
| 1 | the job ended otherwise (failed, expired, canceled), or its report is not complete |
| 2 | the command was used wrongly; nothing was sent |
| 3 | the API refused, or refused a line of a batch; its title, detail and pointers are printed |
| 4 | the API could not be reached, or what answered is not the API |
| 130 | interrupted from the keyboard; the job goes on |

`--json` prints the API's own JSON on standard output and nothing else; a refusal is then the API's
problem document. Everything that is not an answer goes to standard error.
"""

from functions.cli import batch_command, book_commands, drill_command, key_commands
from functions.cli.commands import app

__all__ = ["app", "batch_command", "book_commands", "drill_command", "key_commands"]
