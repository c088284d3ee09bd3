#!/usr/bin/env bash
# Installs the Python package with pip into a temporary environment, and runs its tests on the
# installed package instead of the sources.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# The program confines plugin hosts and starts them.
export RINGWAY=${RINGWAY:-${CARGO_TARGET_DIR:-$root/target}/release/ringway}
[ -x "$RINGWAY" ] || { echo "$RINGWAY: is not there; make build" >&2; exit 1; }
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
# If setuptools is new enough, nothing is downloaded.
if python3 -c 'import setuptools; assert int(setuptools.__version__.split(".")[0]) >= 77' 2>/dev/null; then
  environment=(--system-site-packages) options=(--no-index --no-build-isolation)
else
  environment=() options=()
fi
python3 -m venv "${environment[@]}" "$folder/env"
# Building leaves files next to the sources.
mkdir "$folder/sources" "$folder/python"
cp -r "$root"/python/{pyproject.toml,README.md,ringway} "$folder/sources/"
"$folder/env/bin/pip" install -q --disable-pip-version-check "${options[@]}" "$folder/sources"
rm -r "$folder/sources"
cp -r "$root"/python/{PROTOCOL.md,tests} "$folder/python/"
ln -s "$root/examples" "$root/docs" "$folder/"
cd "$folder/python"
export PATH="$folder/env/bin:$PATH"
ringway-scheduler-proxy --help >/dev/null
python3 - "$folder/env" <<'CHECK'
import pathlib, sys, ringway
place = pathlib.Path(ringway.__file__).resolve()
assert place.is_relative_to(pathlib.Path(sys.argv[1]).resolve()), f"{place} is not what was installed"
assert (place.parent / "py.typed").is_file(), "the package is not marked as typed"
CHECK
python3 -m tests
