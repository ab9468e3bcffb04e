"""Rollout orchestrator for repository factorials: frozen manifest in, Parquet out."""
