"""What proposes: language models behind chat endpoints, a planted simulation, recorded runs.

Every coder answers :class:`~orchestrator.spec.ports.CoderRequest` with a whole reply and its
accounting; none of them parses replies, touches a tree or sees a verdict.
"""
