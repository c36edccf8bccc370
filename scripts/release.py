"""Builds what a release publishes into build/release, twice, checks it, and lists checksums.

Usage: make release, which installs the tools (scripts/release.txt)

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
TYPES, PUBLINT = "@arethetypeswrong/cli@0.18.5", "publint@0.3.25"  # npm


def run(*command: object, env: dict[str, str] | None = None) -> str:
    """The output of a command; ends the program if it fails."""
    texts = [str(part) for part in command]
    print("$", " ".join(texts), flush=True)
    done = subprocess.run(
        texts, cwd=ROOT, env={**os.environ, **(env or {})}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nrelease: {texts[0]} failed")
    return done.stdout


def parts() -> list[tuple[str, str, str, str]]:
    """Name, version, licence and package type of what the npm package holds of others."""
    lock = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    info = json.loads((ROOT / "node_modules/pyodide/pyodide-lock.json").read_text())["info"]
    emscripten = info["platform"].removeprefix("emscripten_").replace("_", ".")
    return [
        ("pyodide", lock["node_modules/pyodide"]["version"], "MPL-2.0", "npm"),
        ("onnxruntime-common", lock["node_modules/onnxruntime-common"]["version"], "MIT", "npm"),
        ("cpython", info["python"], "Python-2.0", "generic"),
        ("emscripten", emscripten, "MIT", "generic"),
    ]


def bill_of_materials(version: str) -> str:
    """As JSON, without a time and a serial number, so that the same commit gives the same bytes."""
    licences, bom = LicenseFactory(), Bom()
    bom.metadata.tools.components.add(this_component())
    bom.metadata.component = Component(
        name="pyruntime",
        version=version,
        type=ComponentType.LIBRARY,
        licenses=[licences.make_from_string("Apache-2.0")],
        bom_ref=f"pyruntime@{version}",
    )
    for name, its_version, licence, kind in parts():
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


def build(out: Path, env: dict[str, str]) -> dict[str, str]:
    """SHA-256 of the built files by name."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    version = json.loads((ROOT / "package.json").read_text())["version"]
    (ROOT / "sbom.cdx.json").write_text(bill_of_materials(version))
    run("npm", "run", "--silent", "build", env=env)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, env=env)
    run("npm", "pack", "--pack-destination", out, env=env)
    shutil.copy(ROOT / "sbom.cdx.json", out)
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
    version = json.loads((ROOT / "package.json").read_text())["version"]
    env = {"SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct").strip()}
    first = build(OUT.with_name("release-again"), env)
    second = build(OUT, env)
    if first != second:
        raise SystemExit(f"release: not reproducible: {[name for name in second if first[name] != second[name]]}")
    check([OUT / name for name in second])
    lines = [f"{digest}  {name}" for name, digest in second.items()]
    (OUT / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    print(f"pyruntime {version}, the same bytes in two builds, in {OUT.relative_to(ROOT)}:", *lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
