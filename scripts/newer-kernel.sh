#!/usr/bin/env bash
# Fetches a Linux kernel for virtual machines newer than this release's, whose guest kernel lacks a driver for
# virtio's IOMMU, and prints two lines, its image and the folder of its modules: scripts/newer-kernel.sh [SUITE], by
# default trixie. Nothing is installed: the packages, of the mirror that apt here uses, are unpacked below the cache
# folder (XDG_CACHE_HOME or ~/.cache), once. Needs no root; x86-64 only.
set -euo pipefail
suite=${1:-trixie}
root=${XDG_CACHE_HOME:-$HOME/.cache}/ringway/kernel-$suite
. "$(dirname "$0")/suite.sh"
suite_alone "$root"
found() {
  local image release modules
  for image in "$root"/files/boot/vmlinuz-*; do
    release=${image##*/vmlinuz-}
    for modules in "$root"/files/{usr/,}lib/modules/"$release"; do
      [ -f "$image" ] && [ -d "$modules" ] && printf '%s\n' "$image" "$modules" && return
    done
  done
  return 1
}
if found; then exit 0; fi
new=$root.new
suite_open newer-kernel "$suite" "$new"
# The package that the name without a version depends on, with image and modules.
package=$(suite apt-cache depends --important linux-image-cloud-amd64 |
  awk '/Depends: linux-image-[0-9]/ { print $2; exit }')
[ -n "$package" ] || { echo "newer-kernel: $suite has no linux-image-cloud-amd64" >&2; exit 1; }
cd "$new/apt/archives"
suite_try "the package can't be fetched" suite apt-get -q download "$package"
cd /
suite_unpack
rm -rf "$root"
mv "$new" "$root"
found || { echo "newer-kernel: $package has no kernel with modules" >&2; exit 1; }
