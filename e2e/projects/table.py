"""The projects: their packages, and how each starts in development and is built."""

from __future__ import annotations

from dataclasses import dataclass

PEER = "onnxruntime-web@1.30.0"
VITE = "vite@8.3.8"
WEBPACK = "webpack@5.112.2"


@dataclass(frozen=True)
class Project:
    """A project in `sources/<folder>`, with the common files.

    dev, build, start: commands of the development server, of the build, and of a server for it ({port} stands for its
    port); without `start` our own server serves the folder `built`. test: a command that succeeds if the sums are
    right. beside: folders to copy to `built` before, from node_modules. common: the folder of the common files.
    static: the folder of static files, if the project shows the component of its page in docs/use, which reads
    digits.onnx from there."""

    name: str
    packages: tuple[str, ...]
    folder: str = ""
    dev: str = ""
    build: str = ""
    start: str = ""
    test: str = ""
    built: str = "dist"
    beside: tuple[tuple[str, str], ...] = ()
    module: bool = True
    common: str = "."
    static: str = ""

    @property
    def source(self) -> str:
        return self.folder or self.name


REACT = ("react@19.3.1", "react-dom@19.3.1")
NEXT = ("next@16.4.6", *REACT)
ANGULAR = tuple(
    f"@angular/{name}@20.3.35" for name in ("common", "compiler", "compiler-cli", "core", "platform-browser")
)
BABEL = ("@babel/core@8.1.3", "@babel/preset-env@8.0.7", "babel-loader@10.1.1")
BESIDE = (("pyruntime/dist", "."), ("onnxruntime-web/dist", "peer"))
ESBUILD = "esbuild start.js worker.js --bundle --format=esm --outdir=dist"

PROJECTS = [
    Project("vite", (VITE, "vue@3.5.45"), dev="vite --port {port} --strictPort", build="vite build"),
    Project(
        "react", (VITE, "@vitejs/plugin-react@6.3.0", *REACT), dev="vite --port {port} --strictPort",
        build="vite build", static="public",
    ),
    Project(
        "vue", (VITE, "@vitejs/plugin-vue@6.0.11", "vue@3.5.45"), dev="vite --port {port} --strictPort",
        build="vite build", static="public",
    ),
    Project("alias", (VITE,), dev="vite --port {port} --strictPort", build="vite build"),
    Project("vite-single", (VITE, "vite-plugin-singlefile@2.3.4"), build="vite build"),
    Project(
        "next", NEXT, dev="next dev --turbopack -p {port}", build="next build --turbopack",
        start="next start -p {port}", static="public",
    ),
    Project(
        "next-webpack", NEXT, "next", "next dev --webpack -p {port}", "next build --webpack", "next start -p {port}",
        static="public",
    ),
    Project(
        "sveltekit",
        ("@sveltejs/kit@2.70.4", "@sveltejs/vite-plugin-svelte@6.2.3", "svelte@5.57.3", "vite@7.3.8"),  # for Node.js 20
        dev="vite dev --port {port} --strictPort", build="vite build", start="vite preview --port {port} --strictPort",
        common="src", static="static",
    ),
    Project("astro", ("astro@5.9.4",), dev="astro dev --port {port}", build="astro build"),
    Project(
        "angular", ("@angular/build@20.3.41", "@angular/cli@20.3.43", *ANGULAR, "rxjs@7.8.2", "typescript@5.9.3"),
        dev="ng serve --port {port}", build="ng build", built="dist/browser", static="public",
    ),
    Project(
        "webpack", (WEBPACK, "webpack-cli@7.3.1", "webpack-dev-server@6.1.0", *BABEL),
        dev="webpack serve --port {port}", build="webpack --mode production",
    ),
    Project(
        "rspack", ("@rspack/core@2.3.3", "@rspack/cli@2.2.8", "@rspack/dev-server@2.2.2"),
        dev="rspack serve --mode development --port {port}", build="rspack build --mode production",
    ),
    Project(
        "parcel", ("parcel@2.16.4",), dev="parcel index.html --cache-dir .cache --watch-dir . -p {port}",
        build="parcel build index.html --cache-dir .cache", beside=(("pyruntime/dist", "engine"),),
    ),
    Project("rollup", ("rollup@4.68.8", "@rollup/plugin-node-resolve@16.0.3"), build="rollup -c", beside=BESIDE),
    Project(
        "esbuild", ("esbuild@0.28.2",), dev=f"{ESBUILD} --servedir=dist --serve={{port}}", build=ESBUILD, beside=BESIDE
    ),
    Project("jest", ("jest@30.5.2", "jest-environment-jsdom@30.5.2"), test="jest", module=False),
    Project("vitest", ("vitest@5.1.1", "jsdom@26.1.0"), test="vitest run"),
    Project("typescript-5.0", ("typescript@5.0.4",), test="tsc -p ."),
]  # fmt: skip
