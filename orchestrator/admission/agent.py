"""Runs a process of the agent in the sandbox: its worktree and its caches are writable, no more.

The worktree is the candidate; caches lie beside it, outside every identity. The agent's wall budget
is its deadline, and when it is over no process of it is left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.admission.session import Decision, Session
from orchestrator.admission.verifier import REPO, limits, variables
from orchestrator.spec.ports import Command, Completed, Mount, Sandbox

CACHE = "/cache"
MEMORY_MIB = 2048


@dataclass(frozen=True)
class Agent:
    """A command and the variables that it gets beside the four fixed ones.

    ``caches``: variable -> folder of this machine, writable for the sandbox's user; the variable
    names its place inside. ``interpreter``: folder that comes first on PATH.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    caches: Mapping[str, Path]
    interpreter: str = ""


def run_agent(session: Session, sandbox: Sandbox, agent: Agent) -> tuple[Completed, Decision]:
    """Run the agent to its end or its deadline, then judge what it left.

    Its steps are not seen, so its tree is observed at the terminal boundary only. Where the wall
    budget ended it, the checkpoint is certified and nothing that it left is judged.
    """
    ended = sandbox.run(_command(session, agent))
    session.agent_ended(ended.exit_class, ended.exit_code)
    return ended, session.propose("terminal")


def _command(session: Session, agent: Agent) -> Command:
    places = {name: f"{CACHE}/{name.lower()}" for name in agent.caches}
    caches = [Mount(agent.caches[name], place, writable=True) for name, place in places.items()]
    return Command(
        argv=agent.argv,
        cwd=REPO,
        env={**variables(agent.environment, agent.interpreter), **places},
        mounts=(Mount(session.worktree, REPO, writable=True), *caches),
        limits=limits(session.wall_left, MEMORY_MIB),
    )
