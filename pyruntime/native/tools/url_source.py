"""Files on servers, fetched in parts.

Spec: https://www.rfc-editor.org/rfc/rfc9110.html#name-range-requests
"""

from __future__ import annotations

import re
import time
from http.client import HTTPException, HTTPResponse, IncompleteRead
from urllib.error import HTTPError
from urllib.parse import quote, urljoin
from urllib.request import Request, urlopen

from pyruntime.errors import InvalidModel, LimitExceeded, ModelNotFound

SMALL = 1 << 20  # bytes; smaller files may be fetched whole
HEAD = 1 << 12  # bytes of the first request, which also finds the size
MOST = 1 << 26  # most bytes that are fetched of a file
VERSION = ("ETag", "Last-Modified")  # headers that differ if a file has changed
PATIENCE = 30.0  # longest wait in seconds for a byte, or before a retry that a server requests
PAUSES = (0.0, 1.0, 2.0, 4.0)  # seconds before each retry
BUSY = (408, 425, 429, 500, 502, 503, 504)
HINT = "download the file, and inspect that"


def is_url(model: object) -> bool:
    return isinstance(model, str) and model.lower().startswith(("http://", "https://"))


class UrlSource:
    """A `Source`. fetched: bytes so far. Errors: InvalidModel, with the file's size, if the server ignores range
    requests for a large file; LimitExceeded beyond `MOST`; ModelNotFound."""

    def __init__(self, url: str, name: str = "") -> None:
        self.url, self.name = url, name
        self.size = self.fetched = 0
        self._parts: list[tuple[int, bytes]] = []
        self._version: dict[str, str] = {}
        self._fetch(0, HEAD)

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size)
        for start, part in reversed(self._parts):
            if start <= offset and end <= start + len(part):
                return part[offset - start : end - start]
        return self._fetch(offset, end - offset)

    def _fetch(self, offset: int, size: int) -> bytes:
        if self.fetched + size > MOST:
            text = f"{self.url}: {size} bytes would have to be fetched in addition to {self.fetched}"
            raise LimitExceeded(text, hint=HINT)
        for pause in (*PAUSES, None):
            try:
                request = Request(self.url, headers={"Range": f"bytes={offset}-{offset + size - 1}"})
                with urlopen(request, timeout=PATIENCE) as response:
                    part = self._body(response, offset, size)
                break
            except HTTPError as error:
                if error.code == 416 and not self.size:  # an empty file has no ranges
                    return b""
                if pause is None or not self._wait(error, pause):
                    raise self._refused(error) from error
            except (OSError, HTTPException, ValueError) as error:  # ValueError: an invalid URL or number
                if pause is None or not isinstance(error, (HTTPException, ConnectionError)):
                    raise InvalidModel(f"cannot fetch {self.url}: {error}") from error
                time.sleep(pause)
        self.fetched += len(part)
        self._parts.append((offset, part))
        return part[:size]

    def _wait(self, error: HTTPError, pause: float) -> bool:
        """Wait until the server may be less busy. Returns False if a retry is useless."""
        header = error.headers.get("Retry-After", "")
        seconds = float(header) if header.isdecimal() else 0.0
        if error.code not in BUSY or seconds > PATIENCE:
            return False
        time.sleep(max(seconds, pause))
        return True

    def _refused(self, error: HTTPError) -> InvalidModel:
        text = f"cannot fetch {self.url}: HTTP {error.code} {error.reason}".rstrip()
        if error.code in (404, 410):
            return ModelNotFound(text, hint="check the address")
        hint = "its server is busy or out of order: try again later" if error.code in BUSY else "check the address"
        return InvalidModel(text, hint=hint)

    def _body(self, response: HTTPResponse, offset: int, size: int) -> bytes:
        content = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if response.status == 206:
            if not content or int(content[1]) != offset:
                raise InvalidModel(f"{self.url}: its server sends a range that was not requested", hint=HINT)
            whole = int(content[2])
            version = {key: response.headers[key] for key in VERSION if key in response.headers}
            self._version = self._version or version
            same = all(version.get(key, text) == text for key, text in self._version.items())
            if whole != (self.size or whole) or not same:
                raise InvalidModel(f"{self.url} has changed while it was read")
            self.size = whole
            return _all(response, min(size, whole - offset))
        length = int(response.headers.get("Content-Length", -1))
        if offset or not 0 <= length <= SMALL:
            text = f"{length} bytes" if length >= 0 else "a file of unknown size"
            raise InvalidModel(
                f"{self.url}: its server ignores range requests, {text} would have to be fetched", hint=HINT
            )
        self.size = length
        return _all(response, length)


def _all(response: HTTPResponse, size: int) -> bytes:
    """`size` bytes. `read` returns fewer if the connection breaks."""
    data = response.read(size)
    if len(data) < size:
        raise IncompleteRead(data, size - len(data))
    return data


def beside(url: str, location: str) -> UrlSource:
    """External data of the model at this URL."""
    return UrlSource(urljoin(url, quote(location.replace("\\", "/"))), location)
