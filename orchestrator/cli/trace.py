"""``factorial trace``: one settled rollout as a person reads it, edits as differences."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from orchestrator.spec.errors import BadInput
from orchestrator.store.reading import read_table
from orchestrator.store.root import Root

Row = dict[str, Any]


def trace(
    root: Annotated[Path, typer.Argument(help="Folder of a run.")],
    rollout: Annotated[str, typer.Argument(help="Rollout id.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """One rollout, readable: actions, evidence, verdicts, what became of each proposal.

    Example: `factorial trace runs/quickstart xmltodict-1.0.2-1.0.3__stale_ON__s1`
    """
    opened = Root.existing(root)
    require_settled(opened, root, rollout)
    tables = {
        name: read_table(opened, name, rollout).to_pylist()
        for name in ("rollout", "actions", "proposals", "verdicts")
    }
    if as_json:
        typer.echo(json.dumps(tables, sort_keys=True))
    else:
        _print_trace(Console(highlight=False), tables)


def require_settled(opened: Root, root: Path, rollout: str) -> None:
    """Refuse the id of a rollout that is not in the lock or has not settled."""
    known = [planned.rollout_id for planned in opened.lock().rollouts]
    if rollout not in known:
        close = get_close_matches(rollout, known, n=3, cutoff=0.5) or known[:1]
        remedy = f"There is, for example: {', '.join(close)}."
        raise BadInput(str(root), "rollout", f"no rollout {rollout!r}", remedy)
    if not opened.record_path(rollout).exists():
        remedy = f"See `factorial status {root}`, and run the study again to go on."
        raise BadInput(str(root), "rollout", f"{rollout} has not settled", remedy)


def _print_trace(console: Console, tables: dict[str, list[Row]]) -> None:
    row = tables["rollout"][0]
    switches = " ".join(
        f"{letter}={int(bool(row[name]))}"
        for letter, name in (("B", "binding"), ("A", "admission"), ("C", "certification"))
    )
    console.rule(Text(row["rollout_id"]))
    console.print(
        f"{row['stack']}{' (SIMULATED)' if row['simulated'] else ''}, evidence {row['evidence']}, "
        f"{switches}, revisions at most {row['revision_cap']}",
        markup=False,
    )
    proposals = {proposal["turn"]: proposal for proposal in tables["proposals"]}
    for action in tables["actions"]:
        _print_action(console, action, proposals.get(action["turn"]))
    if tables["verdicts"]:
        console.rule(Text("evaluator's verdicts, in order"), style="dim")
    for verdict in tables["verdicts"]:
        console.print(
            f"  {verdict['purpose']:13} {verdict['suite']:12} state {verdict['state_id'][:12]} "
            f"{verdict['outcome']}",
            markup=False,
        )
    console.print(_ending(row), markup=False)


def _ending(row: Row) -> str:
    accepted = f"accepted via {row['accepted_via']}" if row["accepted"] else "nothing accepted"
    checkpoint = (row["checkpoint_state_id"] or "none")[:12]
    receipt = (row["receipt_sha256"] or "none")[:12]
    return f"end: {row['end_reason']}; {accepted}; checkpoint {checkpoint}; receipt {receipt}"


def _print_action(console: Console, action: Row, proposal: Row | None) -> None:
    title = f"{action['turn']}. {action['kind'] or 'no action'}: {action['result']}"
    if action["reason"]:
        title += f" ({action['reason']})"
    console.print(Panel(readable(action["reply"] or ""), title=Text(title), title_align="left"))
    console.print(Text(action["observation"] or "", style="dim"))
    if proposal is not None:
        gate = "passed" if proposal["gate_passed"] else "failed"
        kept = "kept" if proposal["retained"] else "rolled back"
        console.print(
            f"  proposal {proposal['proposal']}: state {proposal['state_id'][:12]}, gate {gate}, "
            f"{kept}, patch {proposal['patch_sha256'][:12]}",
            markup=False,
        )


def readable(reply: str) -> Text:
    """A reply for people: an edit as removed and added lines, other actions as ``key: value``.

    A reply that is no JSON object of the expected shape is shown as it is.
    """
    try:
        action = json.loads(reply)
    except ValueError:
        return Text(reply)
    if not isinstance(action, dict) or "action" not in action:
        return Text(reply)
    changes = action.get("changes")
    if action["action"] == "edit" and isinstance(changes, list) and changes:
        if all(isinstance(change, dict) and "path" in change for change in changes):
            return Text("\n").join(_change(change) for change in changes)
        return Text(reply)
    rest = [f"{key}: {value}" for key, value in action.items() if key != "action"]
    return Text("\n".join([str(action["action"]), *rest]))


def _change(change: Row) -> Text:
    shown = Text(f"{change['path']}{' (deleted)' if change.get('delete') else ''}", style="bold")
    for key, mark, style in (("find", "-", "red"), ("replace", "+", "green"),
                             ("create", "+", "green")):  # fmt: skip
        for line in str(change.get(key, "")).splitlines():
            shown.append(f"\n{mark}{line}", style=f"not bold {style}")
    return shown
