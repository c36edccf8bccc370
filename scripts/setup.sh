#!/usr/bin/env bash
# Set up what the Makefile's targets need; each part once, again only when its inputs change.
#
#   scripts/setup.sh [python] [node] [vulkan] [compiler] [browser] [programs] [web_programs] [browsers] [runtimes] [serving] [docs]
#                    (none named: all of them)
#
# python   .venv with requirements.txt and this project (editable); web/runtime, translated from pyruntime/runtime
# node     node_modules by `npm ci`
# vulkan   a software Vulkan device for wgpu natively (Mesa lavapipe), where there is none; needs root and apt
# compiler a C compiler and Python's headers, for the C library; by apt (root); without it its tests are skipped
# browser  Chromium for Playwright: the system's; else by apt (root); else Playwright's own.
#          build/chromium holds its path, empty for Playwright's own.
# browsers Firefox and WebKitGTK with its driver, by apt (root); without it tests use those that are there
# runtimes build/runtimes with e2e/runtimes.txt: Bun and Deno from npm, where tests run the package; 190 MB
# programs build/programs with tests/programs/requirements.txt: Python programs of others that tests run; 600 MB
# web_programs  build/programs/npm with tests/programs/npm.txt, build/programs/pyodide with pyodide.txt: the same for pages
# serving  build/serving with the extra `serve` of pyproject.toml: the server that tests/test_serving.py starts; 400 MB
# docs     build/docs-tools with scripts/typedoc/package.json: TypeDoc, with its own TypeScript; 47 MB
# release  build/release-tools with scripts/release.txt: what `make release` needs; only if named
#
# Stamps and logs are in build/setup; `make clean` removes them.
set -euo pipefail
cd "$(dirname "$0")/.."
state=build/setup
mkdir -p "$state"
if command -v flock >/dev/null; then
  exec 9>"$state/lock"
  flock 9 # two `make`s at once wait for each other
fi

fail() {
  echo "setup: $*" >&2
  exit 1
}

# quietly LABEL COMMAND...: the output goes to a log, shown only when the command fails
quietly() {
  local label=$1 log
  log="$state/$label.log"
  shift
  echo "setup: $label" >&2
  "$@" >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    fail "$label failed; the whole log is $log"
  }
}

# fresh PART FILE...: true if PART was set up from these same files; done_with writes the stamp
digest() { cat "$@" | cksum; }
fresh() { [ -f "$state/$1.stamp" ] && [ "$(cat "$state/$1.stamp")" = "$(digest "${@:2}")" ]; }
done_with() { digest "${@:2}" >"$state/$1.stamp"; }

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt_install() {
  [ -f "$state/apt.stamp" ] || quietly apt-update apt-get update -q
  touch "$state/apt.stamp"
  quietly "apt-$1" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${@:2}"
}

find_python() {
  local name
  for name in python3 python3.11 python3.12 python3.13 python3.14; do
    if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      command -v "$name"
      return
    fi
  done
  return 1
}

setup_python() {
  fresh python requirements.txt pyproject.toml && [ -x .venv/bin/python ] && return
  if [ ! -x .venv/bin/python ]; then
    if ! find_python >/dev/null && can_apt; then apt_install python python3 python3-venv; fi
    local python
    python=$(find_python) || fail "needs Python 3.11 or newer with its venv module (Debian: python3-venv)"
    quietly venv "$python" -m venv .venv
  fi
  quietly pip .venv/bin/python -m pip install -q --disable-pip-version-check -r requirements.txt
  quietly pip-project .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
  done_with python requirements.txt pyproject.toml
}

setup_programs() {
  local list=tests/programs/requirements.txt
  fresh programs "$list" && [ -d build/programs ] && return
  mkdir -p build/programs
  find build/programs -mindepth 1 -maxdepth 1 ! -name npm ! -name pyodide -exec rm -rf {} +
  quietly pip-programs .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target build/programs -r "$list"
  done_with programs "$list"
}

setup_web_programs() {
  local packages=tests/programs/npm.txt wheels=tests/programs/pyodide.txt package folder
  fresh web_programs "$packages" "$wheels" && [ -d build/programs/npm ] && return
  rm -rf build/programs/npm build/programs/pyodide
  quietly pip-pyodide .venv/bin/python -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
    --python-version 3.14 --dest build/programs/pyodide -r "$wheels"
  grep -v '^#' "$packages" | while read -r package; do
    folder=build/programs/npm/$(basename "${package%@*}")
    mkdir -p "$folder"
    quietly "npm-$(basename "$folder")" npm pack --pack-destination "$folder" "$package"
    tar xzf "$folder"/*.tgz -C "$folder" --strip-components 1
    rm "$folder"/*.tgz
  done
  done_with web_programs "$packages" "$wheels"
}

setup_serving() {
  local package
  package=$(grep -o 'kserve==[0-9.]*' pyproject.toml)
  [ "$(cat "$state/serving.stamp" 2>/dev/null)" = "$package" ] && [ -d build/serving ] && return
  rm -rf build/serving
  quietly pip-serving .venv/bin/python -m pip install -q --disable-pip-version-check --target build/serving "$package"
  echo "$package" >"$state/serving.stamp"
}

setup_release() {
  fresh release scripts/release.txt && [ -d build/release-tools ] && return
  quietly pip-release .venv/bin/python -m pip install -q --disable-pip-version-check --upgrade --target build/release-tools -r scripts/release.txt
  done_with release scripts/release.txt
}

setup_docs() {
  local list=scripts/typedoc/package-lock.json
  fresh docs "$list" && [ -d build/docs-tools/node_modules ] && return
  mkdir -p build/docs-tools
  cp scripts/typedoc/package.json "$list" build/docs-tools
  (cd build/docs-tools && npm ci --no-audit --no-fund --loglevel=error) >"$state/npm-docs.log" 2>&1 || fail "npm ci of scripts/typedoc failed; the log is $state/npm-docs.log"
  done_with docs "$list"
}

setup_runtimes() {
  local list=e2e/runtimes.txt
  fresh runtimes "$list" && [ -d build/runtimes/node_modules ] && return
  mkdir -p build/runtimes
  echo '{}' >build/runtimes/package.json # npm installs beside it; with --prefix it would not read the system's settings
  echo "setup: runtimes" >&2
  if (cd build/runtimes && xargs npm install --no-audit --no-fund --no-package-lock --loglevel=error) <"$list" >"$state/runtimes.log" 2>&1; then
    done_with runtimes "$list"
  else
    echo "setup: tests in Bun and Deno run where $list can be installed; the log is $state/runtimes.log" >&2
  fi
}

node_works() { node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' >/dev/null 2>&1 && command -v npm >/dev/null; }

setup_node() {
  [ -f package-lock.json ] || return 0
  fresh node package-lock.json package.json && [ -d node_modules ] && return
  if ! node_works && can_apt; then apt_install node nodejs npm; fi
  node_works || fail "needs Node.js 20 or newer with npm"
  quietly npm-ci npm ci --no-audit --no-fund --loglevel=error
  done_with node package-lock.json package.json
}

setup_vulkan() {
  [ -f "$state/vulkan.stamp" ] && return
  local icd
  for icd in /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json; do
    if [ -e "$icd" ] && ldconfig -p 2>/dev/null | grep -q libvulkan.so.1; then
      touch "$state/vulkan.stamp"
      return
    fi
  done
  if [ "$(uname -s)" = Linux ]; then
    if ! can_apt; then
      echo "setup: no Vulkan driver, so no WebGPU natively (Debian: mesa-vulkan-drivers libvulkan1)" >&2
      return
    fi
    apt_install vulkan mesa-vulkan-drivers libvulkan1
  fi
  touch "$state/vulkan.stamp"
}

setup_compiler() {
  [ -f "$state/compiler.stamp" ] && return
  if command -v cc >/dev/null && .venv/bin/python -c 'import pathlib, sysconfig as s; pathlib.Path(s.get_path("include"), "Python.h").open()' 2>/dev/null; then
    touch "$state/compiler.stamp"
  elif can_apt; then
    apt_install compiler gcc libc6-dev python3-dev
    touch "$state/compiler.stamp"
  else
    echo "setup: no C compiler or no headers of Python, so no C library (Debian: gcc python3-dev)" >&2
  fi
}

find_chromium() {
  local name
  for name in "${PYRUNTIME_CHROMIUM:-}" chromium chromium-browser google-chrome; do
    if [ -n "$name" ] && command -v "$name"; then return; fi
  done
  return 1
}

setup_browser() {
  [ -f build/chromium ] && { [ ! -s build/chromium ] || [ -x "$(cat build/chromium)" ]; } && return
  local path
  if path=$(find_chromium); then
    echo "$path" >build/chromium
    return
  fi
  if can_apt; then
    apt_install chromium chromium
    find_chromium >build/chromium || fail "apt installed chromium, yet it is not on the PATH"
  else
    quietly playwright-chromium .venv/bin/python -m playwright install chromium
    : >build/chromium
  fi
}

setup_browsers() {
  [ -f "$state/browsers.stamp" ] && return
  if { command -v firefox-esr || command -v firefox; } >/dev/null && command -v WebKitWebDriver >/dev/null && command -v Xvfb >/dev/null; then
    touch "$state/browsers.stamp"
  elif can_apt; then
    # not in every distribution; each by itself, and their tests run where they are
    for package in firefox-esr webkit2gtk-driver xvfb; do
      (apt_install "$package" "$package") || true
    done
    touch "$state/browsers.stamp"
  else
    echo "setup: tests in Firefox and WebKitGTK run where firefox-esr, webkit2gtk-driver and xvfb are installed" >&2
  fi
}

[ $# -gt 0 ] || set -- python node vulkan compiler browser programs web_programs browsers runtimes serving docs
for part in "$@"; do
  case $part in
    python)
      setup_python
      .venv/bin/python -m scripts.javascript # quick when nothing changed
      ;;
    node | vulkan | compiler | browser | programs | web_programs | browsers | runtimes | serving | docs | release) "setup_$part" ;;
    *) fail "no such part: $part" ;;
  esac
done
