"""The process that makes and judges cases, so that a crash or a hang ends nothing else."""

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
    """Answers ("make", target, seed, index) with a case; ("fuzz", the same) and ("judge", case, name) with the steps,
    then with a verdict. pages: run some cases in Chromium, too."""
    end_with_parent()
    os.setpgid(
        0, 0
    )  # a new group, but no new session: Linux divides processor time by session, and `nice` works inside one
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    from fuzz import gradients
    from fuzz.draw import Draw
    from fuzz.engine import TWINS
    from fuzz.judge import judge
    from fuzz.pages import Pages
    from fuzz.peers import Peers
    from fuzz.rare_nodes import tables
    from fuzz.targets import make
    from pyruntime.providers.webgpu import wgpu_host

    wgpu_host.PIPELINES = 64  # cases share no kernels, and a pipeline of lavapipe takes 0.7 MB
    tables()  # before the first case, whose time is limited
    peers, browser = Peers(), Pages() if pages else None
    connection.send(("ready",))

    def say(what: str, ours: bool) -> None:
        connection.send(("step", what, ours))

    def answer(command: str, *rest: Any) -> Any:
        if command == "make":
            return make(*rest)
        case, name = (make(*rest), "/".join(map(str, rest))) if command == "fuzz" else rest
        if case is None:
            return Verdict("no case")
        draw = Draw(f"judge/{name}")
        if case.target == "gradients":
            return gradients.judge(case, draw, say)
        return judge(case, draw, peers, say, TWINS, browser)

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
