"""The process in which cases are made and judged, so that one that crashes or hangs takes nothing else with it."""

from __future__ import annotations

import os
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from fuzz.case import Verdict
from fuzz.parent_death import end_with_parent


def serve(connection: Connection, pages: bool) -> None:
    """Answers ("make", target, seed, index) with a case; ("fuzz", the same) and ("judge", case, name) with what is
    done, then with a verdict. pages: some cases are asked in Chromium, too."""
    end_with_parent()
    os.setpgid(0, 0)  # no session of its own: Linux shares processor time out by session, and `nice` only inside one
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    from fuzz.draw import Draw
    from fuzz.engine import TWINS
    from fuzz.judge import judge
    from fuzz.pages import Pages
    from fuzz.peers import Peers
    from fuzz.rare_nodes import tables
    from fuzz.targets import make
    from pyruntime.providers.webgpu import wgpu_host

    wgpu_host.PIPELINES = 64  # no kernel comes back, and on lavapipe one takes 0.7 MB (by hand)
    tables()  # now, since nobody waits for long once a case is asked for
    peers, browser = Peers(), Pages() if pages else None
    connection.send(("ready",))

    def say(what: str, ours: bool) -> None:
        connection.send(("step", what, ours))

    def answer(command: str, *rest: Any) -> Any:
        if command == "make":
            return make(*rest)
        case, name = (make(*rest), "/".join(map(str, rest))) if command == "fuzz" else rest
        return judge(case, Draw(f"judge/{name}"), peers, say, TWINS, browser) if case else Verdict("no case")

    while True:
        try:
            request = connection.recv()
        except EOFError:
            peers.stop()
            if browser:
                browser.stop()
            return
        try:
            connection.send(("done", answer(*request)))
        except Exception:
            connection.send(("fault", traceback.format_exc()))
