"""The steward's desk: a project described in a file, and the command line that carries it out.

A plan says, in public, what a table holds and what is to be released from it; ``dpbook release`` charges a ledger and
writes releases, and prints nothing else that was computed from data. It stands on both sides of the barrier, as a
command line must; each of its commands stands on one.
"""

from dpbook.desk.plan import Plan, Request

__all__ = ["Plan", "Request"]
