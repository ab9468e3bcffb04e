"""What an audit says: one finding for each leak or disagreement. Pure."""

from dataclasses import dataclass

Leak = tuple[str, str, str]
"""Rule, where, what: a finding before it is known whose task it is."""


@dataclass(frozen=True)
class Finding:
    """One leak or disagreement: the rule that it breaks, where, and what."""

    task_id: str
    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.task_id}: {self.rule}: {self.where}: {self.what}"
