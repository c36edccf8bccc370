"""Builds what a release publishes into build/release, checks it, and lists checksums.

Usage: make release, which installs the tools (scripts/release.txt)

The last commit is built twice, in new folders with packages from the lock file, so that the files depend on nothing
else: not on uncommitted or old files, nor on caches of earlier builds. The bytes of both builds must be equal.

The wheel and the sdist for PyPI, the tarball for npm, and sbom.cdx.json: the parts of others in the npm package
(CycloneDX, https://cyclonedx.org), which NOTICE explains. Nothing is published: .github/workflows/release.yml does that
on a tag.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build/release"
BUILD = ROOT / "build/release-trees"
TYPES, PUBLINT = "@arethetypeswrong/cli@0.18.5", "publint@0.3.25"  # npm


def run(*command: object, folder: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """The output of a command; ends the program if it fails."""
    texts = [str(part) for part in command]
    print("$", " ".join(texts), flush=True)
    done = subprocess.run(
        texts,
        cwd=folder,
        env={**os.environ, **(env or {})},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nrelease: {texts[0]} failed")
    return done.stdout


def check_out(commit: str, folder: Path) -> None:
    """Writes a commit into a new folder, with its packages. The Python environment is this tree's."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = folder / "commit.tar"
    run("git", "archive", "--output", archive, commit)
    shutil.unpack_archive(archive, folder)
    archive.unlink()
    run("npm", "ci", "--prefer-offline", "--loglevel=error", folder=folder)
    (folder / ".venv").symlink_to(ROOT / ".venv")


def parts(tree: Path) -> list[tuple[str, str, str, str]]:
    """Name, version, licence and package type of what the npm package holds of others."""
    lock = json.loads((tree / "package-lock.json").read_text())["packages"]
    info = json.loads((tree / "node_modules/pyodide/pyodide-lock.json").read_text())["info"]
    emscripten = info["platform"].removeprefix("emscripten_").replace("_", ".")
    return [
        ("pyodide", lock["node_modules/pyodide"]["version"], "MPL-2.0", "npm"),
        ("onnxruntime-common", lock["node_modules/onnxruntime-common"]["version"], "MIT", "npm"),
        ("@huggingface/jinja", lock["node_modules/@huggingface/jinja"]["version"], "MIT", "npm"),
        ("@huggingface/tokenizers", lock["node_modules/@huggingface/tokenizers"]["version"], "Apache-2.0", "npm"),
        ("cpython", info["python"], "Python-2.0", "generic"),
        ("emscripten", emscripten, "MIT", "generic"),
    ]


def bill_of_materials(tree: Path) -> str:
    """As JSON, without a time and a serial number, so that the same commit gives the same bytes."""
    version = json.loads((tree / "package.json").read_text())["version"]
    licences, bom = LicenseFactory(), Bom()
    bom.metadata.tools.components.add(this_component())
    bom.metadata.component = Component(
        name="pyruntime",
        version=version,
        type=ComponentType.LIBRARY,
        licenses=[licences.make_from_string("Apache-2.0")],
        bom_ref=f"pyruntime@{version}",
    )
    for name, its_version, licence, kind in parts(tree):
        purl = PackageURL(kind, None, name, its_version)
        component = Component(
            name=name,
            version=its_version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=str(purl),
            licenses=[licences.make_from_string(licence)],
        )
        bom.components.add(component)
        bom.register_dependency(bom.metadata.component, [component])
    data = json.loads(JsonV1Dot6(bom).output_as_string())
    del data["serialNumber"], data["metadata"]["timestamp"]
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def build(commit: str, tree: Path, out: Path, env: dict[str, str]) -> dict[str, str]:
    """SHA-256 of the files that a commit, checked out into `tree`, gives; by name."""
    check_out(commit, tree)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (tree / "sbom.cdx.json").write_text(bill_of_materials(tree))
    run("npm", "run", "--silent", "build", folder=tree, env=env)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree, env=env)
    run("npm", "pack", "--pack-destination", out, folder=tree, env=env)
    shutil.copy(tree / "sbom.cdx.json", out)
    shutil.rmtree(tree)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.iterdir())}


def check(files: Sequence[Path]) -> None:
    tarball = next(f for f in files if f.suffix == ".tgz")
    print(run(sys.executable, "-m", "twine", "check", "--strict", *(f for f in files if f.suffix in {".whl", ".gz"})))
    print(run("npm", "publish", "--dry-run", "--access", "public", tarball).splitlines()[-1])
    exports = json.loads((ROOT / "package.json").read_text())["exports"]
    files_only = [name for name in exports if name.endswith((".mjs", ".wasm"))]  # scripts and binaries without types
    rules = [
        "cjs-resolves-to-esm",
        "missing-export-equals",
    ]  # modules for pages only; require() gives names, and `default`
    types = ["--profile", "node16", "--ignore-rules", *rules, "--exclude-entrypoints", *files_only]
    print(run("npx", "--yes", TYPES, *types, "--", tarball))
    print(run("npx", "--yes", PUBLINT, tarball))


def main() -> int:
    os.umask(0o022)  # archives store the modes of files
    if changed := run("git", "status", "--porcelain").rstrip():
        print(f"release: not committed, so not in the release:\n{changed}")
    commit, seconds = run("git", "log", "-1", "--format=%H %ct").split()
    env = {"SOURCE_DATE_EPOCH": seconds}
    again = OUT.with_name("release-again")
    second = build(commit, BUILD / "another" / "tree", again, {**env, "TZ": "Asia/Tokyo"})
    first = build(commit, BUILD / "tree", OUT, env)
    if first != second:
        names = [name for name in first if first[name] != second[name]]
        raise SystemExit(f"release: not reproducible: {names} differ in {OUT} and {again}")
    check([OUT / name for name in first])
    lines = [f"{digest}  {name}" for name, digest in first.items()]
    (OUT / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    print(f"commit {commit}, the same bytes in two builds, in {OUT.relative_to(ROOT)}:", *lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
