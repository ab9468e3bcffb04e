"""The typed-action repository agent: actions, parsing, prompts, budgets, the loop of one rollout.

It knows the ports (coder, verifier, shell), never what stands behind them, and touches no file
system but for reading its prompt files.
"""
