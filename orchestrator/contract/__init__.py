"""The evidence-bound loop contract: a state machine without I/O, its ledger and its receipt.

Events in, commands out. ``machine.step`` is the transaction, ``rules`` the predicates that admit,
``ledger`` chains the events and ``receipt`` says what was decided in a form that anyone can replay.
"""
