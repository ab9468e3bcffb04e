"""What a rollout took: columns that a run reports beside its outcomes.

A table from elsewhere may lack them; what is built on them is then not reported, never zero.
"""

import pyarrow as pa

INT, FLOAT = pa.int64(), pa.float64()

COSTS: dict[str, pa.DataType] = {
    "actions": INT,
    "visible_tests": INT,
    "suite_runs": INT,
    "certifications": INT,
    "certifications_passed": INT,
    "tokens": INT,
    "charged_seconds": FLOAT,
}
VOLATILE = frozenset({"charged_seconds"})
"""Columns that depend on the machine: they never enter ``decision.json``."""
