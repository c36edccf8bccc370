"""The servers and flags of `pyruntime/testing` in Node.js and of `pyruntime.testing`: they agree."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pyruntime import testing

ROOT = Path(__file__).parents[1]
NODE = """
const { DRAWING, FLAGS, serve } = await import(process.argv[1]);
const plain = { isolated: false, headers: { 'X-Mine': 'yes' } };
const servers = [await serve(JSON.parse(process.argv[2])), await serve(process.argv[3], plain)];
console.log(JSON.stringify({ FLAGS, DRAWING, urls: servers.map(({ url }) => url) }));
process.stdin.once('data', async () => {
  for (const server of servers) await server.close();
  process.exit(0);
});
"""
TEXT = bytes(range(256)) * 40
REQUESTS: list[tuple[str, str, dict[str, str]]] = [
    ("GET", "/", {}),
    ("GET", "/page.html?query", {}),
    ("GET", "/a%20b.mjs", {}),
    ("HEAD", "/model.onnx", {}),
    ("GET", "/model.onnx", {}),
    ("GET", "/model.onnx", {"Range": "bytes=5-9"}),
    ("GET", "/model.onnx", {"Range": "bytes=10000-"}),
    ("GET", "/model.onnx", {"Range": "bytes=-7"}),
    ("GET", "/model.onnx", {"Range": "bytes=10239-10240"}),
    ("GET", "/model.onnx", {"Range": "bytes=10240-"}),
    ("GET", "/empty.bin", {}),
    ("GET", "/models/other.wasm", {}),
    ("GET", "/none.js", {}),
    ("GET", "/models/none.js", {}),
    ("GET", "/%2e%2e/secret", {}),
    ("GET", "/..%2fsecret", {}),
    ("GET", "/models/..%2f..%2fsecret", {}),
    ("GET", "/%00", {}),
]


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "secret").write_bytes(b"secret")
    pages, models = tmp_path / "pages", tmp_path / "elsewhere"
    pages.mkdir()
    models.mkdir()
    for name in ("index.html", "page.html", "a b.mjs", "model.onnx"):
        (pages / name).write_bytes(TEXT)
    (pages / "empty.bin").touch()
    (models / "other.wasm").write_bytes(TEXT[:9])
    return {"/": str(pages), "/models/": str(models)}


@pytest.fixture
def of_node(folders: dict[str, str]) -> Iterator[dict[str, Any]]:
    module = str(ROOT / "web/node/testing.js")
    command = ["node", "--input-type=module", "-e", NODE, module, json.dumps(folders), folders["/"]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        yield json.loads(process.stdout.readline())
        process.stdin.write("end\n")
        process.stdin.close()
        assert process.wait(10) == 0


def answer(url: str, method: str, path: str, headers: dict[str, str]) -> tuple[Any, ...]:
    connection = HTTPConnection(str(urlsplit(url).hostname), urlsplit(url).port)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status in (404, 416):
        return response.status, response.getheader("Content-Range"), "Cross-Origin-Opener-Policy" in response.headers
    names = ("Content-Length", "Content-Range", "Cross-Origin-Opener-Policy", "Cross-Origin-Embedder-Policy", "X-Mine")
    kind = str(response.getheader("Content-Type")).split(";")[0] if "." in path and ".bin" not in path else ""
    return response.status, body, kind, *[response.getheader(name) for name in names]


def test_both_servers_answer_the_same(folders: dict[str, str], of_node: dict[str, Any]) -> None:
    with (
        testing.serve(folders) as ours,
        testing.serve(folders["/"], isolated=False, headers={"X-Mine": "yes"}) as plain,
    ):
        for theirs, own in zip(of_node["urls"], (ours.url, plain.url), strict=True):
            for request in REQUESTS:
                found = answer(theirs, *request)
                assert found == answer(own, *request), request
                assert found[1] != b"secret"


def test_flags(of_node: dict[str, Any]) -> None:
    assert [of_node["FLAGS"], of_node["DRAWING"]] == [testing.FLAGS, testing.DRAWING]
