"""Importers: bugs that others have collected become a task manifest with its files beside it.

Reads what is given, executes nothing of it, and writes the manifest last and whole.
"""
