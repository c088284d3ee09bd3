#!/usr/bin/env bash
# Writes packages of this version into target/package: a Debian package, an archive with the same files and a
# list of what it was built from (SBOM), the Python package as a wheel, and the npm package of the client. The same
# commit gives the same bytes, but for the wheel. RINGWAY names a program to pack instead of a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
out=$PWD/target/package
files=$out/files
version=$(cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
print(next(one["version"] for one in json.load(sys.stdin)["packages"] if one["name"] == "ringway-cli"))')
revision=1
architecture=$(uname -m)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
umask 022
if [ -z "${RINGWAY:-}" ]; then
  # Paths of this machine would differ elsewhere.
  RUSTFLAGS="--remap-path-prefix=$PWD=/ringway --remap-path-prefix=$HOME/.cargo=/cargo" \
    cargo build --release -p ringway-cli
  RINGWAY=$target/release/ringway
fi
rm -rf "$files"
mkdir -p "$files"/{bin,man,completions,doc/examples}
install -m 755 "$RINGWAY" "$files/bin/ringway"
strip "$files/bin/ringway"
ringway=$files/bin/ringway
"$ringway" man "$files/man"
"$ringway" completions bash >"$files/completions/ringway"
"$ringway" completions zsh >"$files/completions/_ringway"
"$ringway" completions fish >"$files/completions/ringway.fish"
cp README.md SECURITY.md contrib/debian/README.Debian "$files/doc/"
gzip -9n <CHANGELOG.md >"$files/doc/changelog.gz"
cp -r docs "$files/doc/docs"
git ls-files -z examples | grep -zv /target/ | xargs -0 cp --parents -t "$files/doc"
python3 scripts/sbom.py >"$files/doc/sbom.cdx.json"
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
gzip -9n >"$files/doc/changelog.Debian.gz" <<CHANGES
ringway ($version-$revision) unstable; urgency=medium

  * Version $version; changelog.gz has its changes.

 -- Ringway maintainers <maintainers@ringway.example>  $date
CHANGES

# The archive has the paths of a system's /usr/local.
name=ringway-$version-$architecture-linux
tree=$out/tree/$name
rm -rf "$out/tree"
mkdir -p "$tree"/{bin,share/man/man1,share/bash-completion/completions,share/zsh/site-functions} \
  "$tree"/{share/fish/vendor_completions.d,share/doc/ringway,lib/systemd/system}
cp "$files/bin/ringway" "$tree/bin/"
cp "$files"/man/*.1 "$tree/share/man/man1/"
cp "$files/completions/ringway" "$tree/share/bash-completion/completions/"
cp "$files/completions/_ringway" "$tree/share/zsh/site-functions/"
cp "$files/completions/ringway.fish" "$tree/share/fish/vendor_completions.d/"
cp -r "$files/doc/." "$tree/share/doc/ringway/"
cp LICENSE "$tree/share/doc/ringway/"
unit=ringway@.service
sed 's,/usr/bin/,/usr/local/bin/,' "contrib/systemd/$unit" >"$tree/lib/systemd/system/$unit"
same=(--sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner)
tar "${same[@]}" -C "$out/tree" -cf - "$name" |
  gzip -9n >"$out/$name.tar.gz"
rm -rf "$out/tree"

# npm's packages are archives with the folder `package`.
client=$(python3 -c 'import json; print(json.load(open("clients/typescript/package.json"))["version"])')
(cd clients/typescript && git ls-files -z) |
  tar -C clients/typescript "${same[@]}" --transform 's,^,package/,' --null -T - -cf - |
  gzip -9n >"$out/ringway-client-$client.tgz"

# setuptools leaves files beside the sources.
wheel=$(mktemp -d)
trap 'rm -rf "$wheel"' EXIT
cp -r python/{pyproject.toml,README.md,ringway} "$wheel/"
python3 -m venv "$wheel/env"
"$wheel/env/bin/pip" wheel -q --disable-pip-version-check --no-deps -w "$out" "$wheel"

command -v cargo-deb >/dev/null || cargo install --locked cargo-deb
cargo deb --no-build --no-strip -p ringway-cli --deb-revision "$revision" --output "$out/"
echo "packages in $out:"
find "$out" -maxdepth 1 -type f -printf '  %f  %s bytes\n' | sort
