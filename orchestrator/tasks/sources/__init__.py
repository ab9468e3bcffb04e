"""Sources of tasks behind one function: a manifest's entry in, :class:`Endpoints` out.

Nothing of a source is executed: no build backend, hook, filter or submodule. The same entry gives
the same endpoints everywhere.
"""

from pathlib import Path

from orchestrator.spec.task import GitSource, SdistSource, Task
from orchestrator.tasks.sources.endpoints import Endpoints, Expected
from orchestrator.tasks.sources.git import read_commits
from orchestrator.tasks.sources.patches import read_patches
from orchestrator.tasks.sources.sdist import read_sdists

__all__ = ["Endpoints", "Expected", "read_endpoints"]


def read_endpoints(task: Task, manifest: Path) -> Endpoints:
    """Both trees of ``task``; paths in its source are relative to the folder of ``manifest``.

    Raises BadInput for a source that does not say what it should, Ineligible (``direct-parent``)
    for commits that are not parent and child, InfrastructureFault where a server does not answer.
    """
    source = task.source
    if isinstance(source, SdistSource):
        return read_sdists(source, task.id, manifest)
    if isinstance(source, GitSource):
        return read_commits(source, task.id, manifest)
    return read_patches(source, task.id, manifest)
