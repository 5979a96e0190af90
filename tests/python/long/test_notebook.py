"""A notebook, executed headless: what its cells show."""

import os

import nbclient
import nbformat

EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "python", "notebook.ipynb")


def execute(notebook):
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # with it a kernel leaves what processes write where it is
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    return notebook.cells


def text(cell):
    return "".join(output.get("text") or output["data"]["text/plain"] for output in cell.outputs)


def test_cells():
    cells = execute(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in [
        "import time, tutti\nsession = tutti.ProcessSession(3)",
        "@session.define\ndef hello(x):\n    print('hello', x)\n    return x\n",
        "hello(3)\nsession.sync_all()\ntime.sleep(0.5)",
        "session.show()",
        "@session.define\ndef pause(x):\n    import time\n    time.sleep(x)\npause(2)\nsession.sync_all(progress=True)",
        "try:\n    hello()\n    session.sync_all()\nexcept tutti.RemoteError as error:\n    print(len(error.failures), error.failures[0].kind)",
        "hello(4).debug_get_from_remote(2)",
    ]]))
    assert sorted(text(cells[2]).splitlines()) == ["[worker 1] hello 3", "[worker 2] hello 3", "hello 3"]
    assert cells[3].outputs[0]["data"]["text/html"].count("<tr>") == 4 and "pid" in text(cells[3])
    assert "slowest: worker" in text(cells[4]) and "IProgress" not in text(cells[4])
    assert text(cells[5]).splitlines()[-1] == "3 TypeError"
    assert [output["data"]["text/plain"] for output in cells[6].outputs if output.output_type == "execute_result"] == ["4"]


def test_the_example():
    with open(EXAMPLE) as file:
        notebook = nbformat.read(file, as_version=4)
    for cell in execute(notebook):
        assert all(output.output_type != "error" for output in cell.get("outputs", []))
