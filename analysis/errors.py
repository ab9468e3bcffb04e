"""The one error of this package: what is wrong, where, and what to do about it."""

from dataclasses import dataclass


@dataclass
class AnalysisError(Exception):
    """An input that cannot be analysed. Names file, field and remedy (exit code 2)."""

    file: str
    field: str
    problem: str
    remedy: str
    exit_code = 2

    def __str__(self) -> str:
        where = f"{self.file}: {self.field}" if self.field else self.file
        return f"{where}: {self.problem}. {self.remedy}"
