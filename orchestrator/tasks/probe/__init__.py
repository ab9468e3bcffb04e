"""The scanner that looks for secrets of which it knows only digests.

It runs in an interpreter of its own: the environment's on the host, the agent's inside the sandbox.
The modules of this package are therefore sent as text over standard input, use nothing but the
standard library and know every Python from 3.8 on.
"""
