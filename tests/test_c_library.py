"""The C library: the examples in C and Rust, and a program in C that calls every function, also wrongly."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import onnx
import pytest
from onnx import parser

from kit.docs import ROOT
from pyruntime import __version__
from pyruntime.cli import main

pytestmark = pytest.mark.skipif(
    not shutil.which("cc") or not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="no C compiler, or no headers of Python",
)
MODELS = {
    "sums": "g (float[N, 3] x) => (float[N, 3] y, int64[2] z) { y = Add(x, x)  z = Shape(x) }",
    "words": "g (string[N] s) => (string[N] t) { t = StringConcat(s, s) }",
    "bfloats": "g (bfloat16[2] b) => (bfloat16[2] c) { c = Neg(b) }",
    "long": """g (int64 n) => (float y) <float zero = {0}, bool yes = {1}> {
        y = Loop (n, yes, zero) <body = b (int64 i, bool c, float s) => (bool d, float t) {
            d = Identity(c)  u = Cast<to = 1>(i)  v = Sin(u)  t = Add(s, v)
        }>
    }""",
}
LINES = """
no failure yet: NULL
version: VERSION
a file that is not there: 0 ModelNotFound: .*none.onnx.*
no path: 0 InvalidInput: path is NULL.*
an option of another name: 0 InvalidInput: there is no option "threads" \\(options are .*intra_op_num_threads.*
options that are no JSON: 0 InvalidInput: options are no JSON.*
providers of another type: 0 InvalidInput: .*
bytes that are no model: 0 InvalidModel: .*
input x type 1 shape -1 3 data NULL
output y type 1 shape -1 3 data NULL
output z type 7 shape 2 data NULL
sums: 2
  y type 1 rank 2 size 24: 2 4 6 8 10 12
  z type 7 rank 1 size 16: 2 3
one output: 1
  z type 7 rank 1 size 16: 2 3
an unknown output: -1 InvalidInput: .*"q".*
no input: -1 InvalidInput: .*"x".*
too few bytes: -1 InvalidInput: input "x" has 20 bytes; shape \\[2, 3\\] of float32 needs 24.*
a negative size: -1 InvalidInput: input "x" has shape \\[-2, 3\\].*
an unknown type: -1 InvalidInput: input "x": 99 is no type of elements.*
another type: -1 InvalidInput: .*"x".*int32.*float32.*
no data: -1 InvalidInput: data of input "x" is NULL.*
an empty tensor: 2
  y type 1 rank 2 size 0:
  z type 7 rank 1 size 16: 0 3
runs in threads that failed: 0
a run that is stopped: Terminated
a released session: -1 InvalidInput: there is no session \\d.*
strings: 1
  t type 8 rank 1 size 16: aa éé
strings that are no UTF-8: -1 InvalidInput: string 1 of input "s" is no UTF-8.*
bfloat16: 1
  c type 16 rank 1 size 4: bf80 4000
"""
LOG = "the run was stopped (RunOptions.terminate is set)\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    assert main(["embed", str(folder)]) == 0
    assert {path.suffix for path in folder.iterdir()} == {".h", Path(sysconfig.get_config_var("EXT_SUFFIX")).suffix}
    return folder


def compiled(library: Path, source: Path, target: Path) -> Path:
    """With all warnings as errors."""
    path = f"-Wl,-rpath,{library}"
    if source.suffix == ".rs":
        command = ["rustc", "-D", "warnings", source, "-L", library, "-C", f"link-arg={path}", "-o", target]
    else:
        flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
        command = ["cc", *flags, source, f"-I{library}", f"-L{library}", "-lpyruntime", path, "-o", target]
    subprocess.run([*map(str, command)], check=True)
    return target


def output(program: Path, *arguments: Path, folder: Path, log: str = "") -> str:
    """What it prints in a process without this one's environment. log: on standard error"""
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, encoding="utf-8", env={}, timeout=120)
    assert (done.returncode, done.stderr) == (0, log)
    return done.stdout


LANGUAGES = {"c": "cc", "rust": "rustc"}


@pytest.mark.parametrize("language", [name for name, compiler in LANGUAGES.items() if shutil.which(compiler)])
def test_examples(language: str, library: Path, tmp_path: Path) -> None:
    (source,) = (ROOT / "examples" / language).glob("read.*")
    program = compiled(library, source, tmp_path / "read")
    assert output(program, folder=source.parent) == "A blank is read as 1.\n"


def test_every_function(library: Path, tmp_path: Path) -> None:
    for name, text in MODELS.items():
        made = parser.parse_model(f'<ir_version: 8, opset_import: ["": 20]> {text}')
        onnx.save(made, tmp_path / f"{name}.onnx")
    program = compiled(library, ROOT / "tests/c_library/calls.c", tmp_path / "calls")
    found = output(program, tmp_path, folder=tmp_path, log=LOG).splitlines()
    found = [line for line in found if not line.startswith("Causes and remedies")]
    expected = LINES.strip("\n").replace("VERSION", re.escape(__version__)).splitlines()
    assert [a for a, b in zip(found, expected, strict=False) if not re.fullmatch(b, a)] == []
    assert len(found) == len(expected)
