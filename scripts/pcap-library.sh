#!/usr/bin/env bash
# Builds target/pcap/libpcap.so.0.8, the distribution's libpcap with the module of clients/pcap.
# Fetches the source package with the system's own package sources, as any user; it installs nothing and
# changes no setting. Exit code 2: the source or a program that builds it can't be had.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
folder=${CARGO_TARGET_DIR:-$root/target}/pcap
case $folder in /*) ;; *) folder=$root/$folder ;; esac
for program in apt-get dpkg-source cc make flex bison; do
  command -v "$program" >/dev/null && continue
  echo "pcap-library: $program is missing; scripts/setup.sh installs it" >&2
  exit 2
done
mkdir -p "$folder"
# Of two at once, the second one finds what the first one built.
exec 9>"$folder/lock"
flock 9

# The system's package sources as sources of source packages, with state of our own.
fetch() {
  local sources=$folder/apt/sources options file
  rm -rf "$folder/apt" && mkdir -p "$sources" "$folder"/apt/{lists,archives}/partial
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
    [ -f "$file" ] || continue
    sed -E 's/^Types:.*/Types: deb-src/; s/^deb(-src)? /deb-src /' "$file" >"$sources/${file##*/}"
  done
  options=(-qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$sources"
    -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt" -o APT::Sandbox::User=root)
  echo "pcap-library: fetching the source package libpcap"
  apt-get "${options[@]}" update || true
  (cd "$folder/apt" && apt-get "${options[@]}" --only-source source libpcap >/dev/null) \
    || { echo "pcap-library: the source package libpcap can't be had" >&2; exit 2; }
  mv "$folder"/apt/libpcap-*/ "$folder/source"
  rm -rf "$folder/apt"
}

# Adds the module to the list of modules, and `ringway:` to the names that are no interface of the kernel.
register() {
  sed -i -E \
    -e '1i struct pcap_if_list;\nstruct pcap;\nint ringway_findalldevs(struct pcap_if_list *, char *);' \
    -e '1i struct pcap *ringway_create(const char *, char *, int *);' \
    -e 's/^\} capture_source_types\[\] = \{$/&\n\t{ ringway_findalldevs, ringway_create },/' \
    -e 's/^\tif \(!device .* strcmp\(device, "any"\) == 0$/&\n\t    || strncmp(device, "ringway:", 8) == 0/' \
    "$folder/source/pcap.c"
  [ "$(grep -c ringway "$folder/source/pcap.c")" = 4 ] && return
  rm -r "$folder/source"
  echo "pcap-library: pcap.c of this libpcap has another list of modules" >&2
  exit 1
}

[ -d "$folder/source" ] || fetch
grep -q ringway "$folder/source/pcap.c" || register
cd "$folder/source"
if [ ! -f config.status ]; then
  echo "pcap-library: configuring"
  ./configure --quiet --disable-dbus --disable-bluetooth --disable-rdma --disable-netmap --without-libnl \
    --without-dag --without-septel --without-snf --without-dpdk >configure.out 2>&1 \
    || { tail configure.out >&2; exit 1; }
fi
flags=(-std=gnu11 -O2 -g -Wall -Wextra -Werror=implicit-function-declaration -fPIC -fvisibility=hidden
  -DHAVE_CONFIG_H -I. "-I$root/clients/c")
cc "${flags[@]}" -c -o pcap-ringway.o "$root/clients/pcap/pcap-ringway.c"
cc "${flags[@]}" -c -o ringway-command.o "$root/clients/pcap/command.c"
objects="pcap-ringway.o ringway-command.o"
for source in "$root"/clients/c/*.c; do
  object=ring-$(basename "$source" .c).o
  cc "${flags[@]}" -c -o "$object" "$source"
  objects+=" $object"
done
# The distribution's own target, whose library has the name that programs are linked with.
rm -f libpcap.so*
make -s LIBS="$objects" shared >make.out 2>&1 \
  || { tail make.out >&2; exit 1; }
cp -L libpcap.so.0.8 "$folder/new"
mv "$folder/new" "$folder/libpcap.so.0.8"
echo "$folder/libpcap.so.0.8"
