"""Drills: one named fault on a running deployment, then the books of it.

    inject -> audit -> repair -> audit -> account

A drill drops a message, deletes an object or kills a process, lets the system work, and compares
what the audit says with what was done. `catalog.DRILLS` is the table; `running.run` runs them. The
product has no hook for any of it: messages are dropped by a port of the drill's own, and everything
else goes through the interfaces that callers, Pub/Sub and the scheduler use.
"""
