"""The nouns of an experiment (tasks, stacks, studies, rollouts, budgets, locks) and the ports.

Nothing here performs I/O except :mod:`orchestrator.spec.manifest` (reads manifests) and nothing
here imports another room.
"""
