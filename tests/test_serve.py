"""What `pyruntime serve` sends: types, codings, what has not changed."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from pyruntime.cli import serve

TEXT = b"export const answer = 42;\n" * 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/index.html").write_bytes(TEXT)
    (tmp_path / "a.mjs").write_bytes(TEXT)
    (tmp_path / "small.mjs").write_bytes(b"1")
    (tmp_path / "model.onnx").write_bytes(TEXT)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[serve.Server]:
    with serve.Server({"/": folder}, compress=True) as made:
        yield made


def get(server: serve.Server, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(*server.server_address[:2])
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


@pytest.mark.parametrize(
    "path, accepted, coding",
    [
        ("/a.mjs", "gzip, deflate", "gzip"),
        ("/pages/", "gzip", "gzip"),
        ("/pages/?query", "gzip", "gzip"),
        ("/a.mjs", "gzip;q=0", None),
        ("/a.mjs", "", None),
        ("/small.mjs", "gzip", None),
        ("/model.onnx", "gzip", None),
    ],
)
def test_compresses_what_gets_smaller(server: serve.Server, path: str, accepted: str, coding: str | None) -> None:
    response, body = get(server, path, Accept_Encoding=accepted)
    assert response.getheader("Content-Encoding") == coding
    assert response.getheader("Vary") == "Accept-Encoding"
    assert response.getheader("Content-Length") == str(len(body))
    assert (gzip.decompress(body) if coding else body) == (b"1" if "small" in path else TEXT)
    assert len(body) < len(TEXT) / 10 or not coding
    again, nothing = get(
        server, path, Accept_Encoding=accepted, If_Modified_Since=str(response.getheader("Last-Modified"))
    )
    assert (again.status, nothing) == (304, b"")


def test_brotli_where_it_is_installed(server: serve.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fake: dict[str, Any] = {"br": lambda data: b"br" + data[:1], **serve.ENCODERS}
    monkeypatch.setattr(serve, "ENCODERS", fake)
    assert get(server, "/a.mjs", Accept_Encoding="gzip, br")[1] == b"bre"


def test_files_that_are_compressed_already(server: serve.Server, folder: Path) -> None:
    """The better one that the browser takes, unless it is older than the file; for models too."""
    for name in ("a.mjs", "model.onnx"):
        for ending in ("br", "gz"):
            (folder / f"{name}.{ending}").write_bytes(ending.encode())
    assert get(server, "/a.mjs", Accept_Encoding="gzip, br")[1] == b"br"
    assert get(server, "/model.onnx", Accept_Encoding="gzip")[1] == b"gz"
    assert get(server, "/model.onnx")[1] == TEXT
    head, nothing = get(server, "/a.mjs", "HEAD", Accept_Encoding="br")
    assert (head.getheader("Content-Encoding"), head.getheader("Content-Length"), nothing) == ("br", "2", b"")
    os.utime(folder / "model.onnx.gz", (0, 0))
    os.utime(folder / "model.onnx.br", (0, 0))
    assert get(server, "/model.onnx", Accept_Encoding="gzip, br")[1] == TEXT


def test_mounts_and_what_is_outside(folder: Path) -> None:
    """A longer prefix wins; nothing beside a folder is sent, and a name that no file can have is told quietly."""
    mounts = {"/": folder / "pages", "/more/": folder}
    paths = "/ /more/a.mjs /more/ /more/pages /a.mjs /../a.mjs /%2e%2e/a.mjs /more/..%2f..%2fa.mjs /%00".split()
    with serve.Server(mounts, compress=True) as server:
        found = {path: get(server, path, Accept_Encoding="gzip")[0] for path in paths}
    assert [answer.status for answer in found.values()] == [200, 200, 200, 301, *[404] * 5]
    assert found["/"].getheader("Content-Encoding") == found["/more/a.mjs"].getheader("Content-Encoding") == "gzip"


@pytest.mark.parametrize(
    "asked, part", [("0-3", (0, 4)), ("2590-", (2590, 2600)), ("-7", (2593, 2600)), ("2599-9999", (2599, 2600))]
)
def test_parts_of_files(server: serve.Server, asked: str, part: tuple[int, int]) -> None:
    response, body = get(server, "/model.onnx", Range=f"bytes={asked}", Accept_Encoding="gzip")
    assert response.status == 206 and body == TEXT[slice(*part)]
    assert response.getheader("Content-Range") == f"bytes {part[0]}-{part[1] - 1}/{len(TEXT)}"
    for method, condition in (("HEAD", {}), ("GET", {"If_Range": '"another"'})):
        response, body = get(server, "/model.onnx", method, Range=f"bytes={asked}", **condition)
        assert (response.status, response.getheader("Content-Length")) == (200, str(len(TEXT)))
        assert body == (b"" if method == "HEAD" else TEXT)


@pytest.mark.parametrize(
    "asked, status",
    [
        ("bytes=2600-", 416),
        ("bytes=-0", 416),
        ("bytes=-", 200),
        ("words=0-3", 200),
        ("bytes=5-2", 200),
        ("bytes=0-" + "9" * 5000, 200),
    ],
    ids=lambda value: str(value)[:12],
)
def test_parts_that_there_are_not(server: serve.Server, asked: str, status: int) -> None:
    response, body = get(server, "/model.onnx", Range=asked)
    assert response.status == status and len(body) == (2600 if status == 200 else 0)


def test_parts_are_read_in_pieces(server: serve.Server, folder: Path) -> None:
    with (folder / "model.onnx").open("rb") as file:
        part = serve.Part(file, 5)
        assert [part.read(3), part.read(3), part.read(3)] == [TEXT[:3], TEXT[3:5], b""]


def test_takes_the_next_free_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve.Server({"/": folder}) as first, serve.Server({"/": folder}) as second:
        taken = [first.server_address[1], second.server_address[1]]
        monkeypatch.setattr(serve, "PORTS", [*taken, 0])
        with serve.listening({"/": folder}, None) as third:
            assert third.server_address[1] not in taken
        with pytest.raises(OSError):
            serve.listening({"/": folder}, taken[0])
