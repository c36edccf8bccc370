"""web/worker/download.js: bytes in pieces, and what a broken download says."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from kit.chromium import ROOT

SCRIPT = """
  const { fetchBytes } = await import('./web/worker/download.js');
  const { pieces, announced, fault, status } = JSON.parse(process.argv[1]);
  const queue = pieces.map((size, i) => new Uint8Array(size).fill(i + 1));
  globalThis.fetch = async () => {
    if (fault === 'refused') throw new TypeError('no connection');
    const pull = (stream) => {
      if (queue.length) stream.enqueue(queue.shift());
      else if (fault) stream.error(new TypeError(fault));
      else stream.close();
    };
    const headers = announced === null ? {} : { 'content-length': String(announced) };
    return new Response(new ReadableStream({ pull }), { headers, status });
  };
  const told = [];
  const result = await fetchBytes({ url: 'https://host/a.onnx' }, (...counts) => told.push(counts)).then(
    (bytes) => ({ bytes: [...bytes] }),
    ({ type, message }) => ({ type, message }),
  );
  console.log(JSON.stringify({ ...result, told }));
"""


def fetched(pieces: list[int], announced: int | None, fault: str = "", status: int = 200) -> dict[str, Any]:
    given = json.dumps({"pieces": pieces, "announced": announced, "fault": fault, "status": status})
    command = ["node", "--input-type=module", "-e", SCRIPT, given]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    )
    return found


@pytest.mark.parametrize("announced", [None, 0, 5, 6, 7])
@pytest.mark.parametrize("pieces", [[], [6], [1, 2, 3]])
def test_pieces(pieces: list[int], announced: int | None) -> None:
    """Whatever length the server announces."""
    found = fetched(pieces, announced)
    assert found["bytes"] == [i + 1 for i, size in enumerate(pieces) for _ in range(size)]
    assert found["told"][-1] == [sum(pieces)] * 2


@pytest.mark.parametrize(
    ("fault", "status", "text"), [("refused", 200, "no connection"), ("cut off", 200, "cut off"), ("", 503, "HTTP 503")]
)
def test_faults_name_the_address(fault: str, status: int, text: str) -> None:
    found = fetched([1, 2], 9, fault, status)
    assert found["type"] == "InvalidModel"
    assert "https://host/a.onnx" in found["message"] and text in found["message"]
