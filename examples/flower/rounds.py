"""Runs the Flower app of this folder on this machine: a SuperLink, and two SuperNodes with different digits."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent.resolve()
BIN = Path(sys.executable).parent
DATA = HERE.parent / "federated"
DIGITS = [(0, 6), (3, 9)]  # first and last of each client
# Beyond this machine: certificates in place of --insecure, and logins of nodes (--enable-supernode-auth).
CONNECTION = '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{}"\ninsecure = true\n'


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    while True:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)


def main() -> None:
    port, nodes = free_port(), [free_port() for _ in DIGITS]
    address, started = f"127.0.0.1:{port}", []
    with tempfile.TemporaryDirectory() as home:
        Path(home, "config.toml").write_text(CONNECTION.format(address))
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # of the programs that Flower starts
        # Without the second variable, Flower tells its makers that it runs.
        variables = {**os.environ, "FLWR_HOME": home, "FLWR_TELEMETRY_ENABLED": "0", "PATH": path}

        def start(name: str, *arguments: str) -> None:
            with Path(home, f"{len(started)}.log").open("w") as log:
                command = [str(BIN / name), "--insecure", *arguments]
                started.append(subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT))

        try:
            start("flower-superlink", "--disable-runtime-dependency-installation", "--port", str(port))
            wait_for(port)
            for node, (first, last) in zip(nodes, DIGITS, strict=True):
                config = f'data="{DATA}" first={first} last={last}'
                start("flower-supernode", "--superlink", address, "--port", str(node), "--node-config", config)
            run = [str(BIN / "flwr"), "run", str(HERE), "here", "--run-config", f'data="{DATA}"', "--stream"]
            subprocess.run(run, env=variables, check=True)
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                process.wait()


if __name__ == "__main__":
    main()
