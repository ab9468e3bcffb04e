"""Where untrusted commands run: backends of the ``Sandbox`` port and the suite each must pass.

A backend gives every command a fresh world of its own, enforces the limits it was given and leaves
no process behind; what this machine can enforce is asked of :mod:`.capabilities`.
"""
