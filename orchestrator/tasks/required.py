"""What a task manifest requires of its tasks that only a build can tell."""

from pathlib import Path

from orchestrator.spec.errors import BadInput
from orchestrator.spec.task import Requires
from orchestrator.tasks.compartments import BuiltTask
from orchestrator.tasks.eligibility import some


def require_functions(built: BuiltTask, requires: Requires, manifest: Path) -> None:
    """BadInput where a task has fewer fail-to-pass functions than its manifest requires."""
    found, wanted = built.fail_to_pass_functions, requires.min_fail_to_pass_functions
    if found < wanted:
        raise BadInput(
            str(manifest),
            f"tasks.{built.task_id}",
            f"has {some(found, 'fail-to-pass function')}, and the manifest requires {wanted}",
            "Take the task out, or lower requires.min_fail_to_pass_functions.",
        )
