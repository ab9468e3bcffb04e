"""The contract around a plain project: any agent proposes, the project's own checks judge.

The transaction is ``orchestrator.contract.machine``, unchanged. This room gives it trees taken from
a worktree, a verifier made of the project's commands, and the guards that a repository without a
sealed task needs; every reason has a stable id, and both ledgers lead to one receipt.
"""
