"""The example notebook: its cells run in order and say what the notebook says that they said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnxruntime
import pytest

ROOT = Path(__file__).parents[1]
TIME = re.compile(r"in \d+\.\d s")


def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "examples/notebook"
    folder.mkdir(parents=True)
    (tmp_path / "kit").symlink_to(ROOT / "kit")
    monkeypatch.chdir(folder)
    cells = json.loads((ROOT / "examples/notebook/digits.ipynb").read_text())["cells"]
    names: dict[str, object] = {"__name__": "notebook"}
    for n, cell in enumerate(cell for cell in cells if cell["cell_type"] == "code"):
        exec(compile("".join(cell["source"]), f"cell {n + 1}", "exec"), names)
        shown = "".join(line for output in cell["outputs"] for line in output["text"])
        printed = capsys.readouterr().out
        if "accuracy" not in printed and "[[" not in printed:  # sums in another order change the last digits
            assert TIME.sub("", printed) == TIME.sub("", shown)
    accuracy, held_out = names["accuracy"], names["held_out"]
    assert callable(accuracy)
    monkeypatch.setitem(names, "session", Trained(folder / "digits_trained.onnx"))
    assert accuracy(held_out) >= 0.97


class Trained:
    """The exported model in onnxruntime, as the notebook asks a session."""

    def __init__(self, path: Path) -> None:
        self.session = onnxruntime.InferenceSession(path)

    def evaluate(self, feeds: dict[str, object], outputs: list[str]) -> dict[str, object]:
        return dict(zip(outputs, self.session.run(outputs, feeds), strict=True))
