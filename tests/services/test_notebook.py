"""The notebook runs from top to bottom on a small real run, and is kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.e2e.support import REPOSITORY, make_workspace

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]
NOTEBOOK = REPOSITORY / "analysis" / "notebooks" / "explore.ipynb"


def read() -> NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_kept_without_outputs() -> None:
    nbformat.validate(read())
    for cell in read().cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    path = tmp_path_factory.mktemp("notebook")
    rates = [{"alpha": 0.6, "beta": 0.3, "overfit": 0.2}]
    workspace = make_workspace(path, stack={"rates": rates, "submit": 0.3, "test": 0.4})
    workspace.run("run", str(workspace.study), "--root", "runs/mini")
    notebook = read()
    client = NotebookClient(
        notebook,
        timeout=600,
        startup_timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(_kernel_folder(path))}},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACTORIAL_ROOT", "runs/mini")
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        client.execute()
    return notebook


def _kernel_folder(path: Path) -> Path:
    """Below the run's own folder, as a notebook's is: the root is found from there."""
    folder = path / "notebooks"
    folder.mkdir()
    return folder


def printed(notebook: NotebookNode) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    streams = [output.text for output in outputs if output.output_type == "stream"]
    return "\n".join([*streams, *(o.data.get("text/plain", "") for o in outputs if "data" in o)])


def test_every_cell_runs_and_shows_something(executed: NotebookNode) -> None:
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert all(cell.outputs for cell in code[1:]), "only the imports are silent"
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 3


def test_it_shows_the_decision_and_one_rollout_down_to_its_patch(executed: NotebookNode) -> None:
    text = printed(executed)
    assert "stack mini, 8 rollouts" in text
    assert "planned 8 = settled 8" in text
    assert "Decision on contract" in text
    assert "Visible tests" in text or "asked for no test" in text
    assert "diff --git" in text
    assert "gate" in text
