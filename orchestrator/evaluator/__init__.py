"""Suites of a task run on ground that only the evaluator owns: runner, suites, verdicts, replay.

Candidate code is hostile code. It runs inside a sandbox next to the tests; everything that
decides (which ids count, what the report says, what is cached) happens outside, here.
"""
