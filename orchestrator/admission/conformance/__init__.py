"""The conformance catalogue: failures injected into real sessions, each with its negative control.

``catalogue`` is the table, ``cases_*`` inject and observe, ``guards`` says what is switched off for
a negative control, ``running`` carries a choice of cases out. Nothing outside imports this package
but the command that runs it.
"""
