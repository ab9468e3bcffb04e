"""Curation: pinned source releases in; agent mirror, sealed evaluator bundle and gold patch out.

Each stage is one module: ``index`` and ``download`` fetch, ``unpack`` reads an archive as a value,
``classify`` tells production from tests and metadata, ``environment`` makes the interpreter,
``mining`` runs the suites and derives their ids, ``build`` writes the three compartments,
``variants`` finds what the planted coder proposes, ``audit`` proves that nothing sealed leaked.
"""
