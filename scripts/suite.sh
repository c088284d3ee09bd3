# Sourced by scripts that unpack packages of another Debian release; nothing is installed. After `suite_open NAME SUITE
# FOLDER`, apt's programs run by `suite` see only that release, with nothing installed; `suite_unpack` unpacks fetched
# packages into FOLDER/files.

# suite_alone FOLDER: concurrent downloads of the same packages are serialized.
suite_alone() {
  mkdir -p "$(dirname "$1")"
  exec 9>"$1.lock"
  flock 9
}

# suite_open NAME SUITE FOLDER: the packages are of the mirror that apt here uses; NAME is the prefix of messages.
suite_open() {
  suite_name=$1 suite_folder=$3
  command -v apt-get >/dev/null || { echo "$1: this system has no apt" >&2; exit 1; }
  local repositories mirror
  repositories=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian')
  mirror=$(grep -v security <<<"$repositories" | head -n 1)
  [ -n "$mirror" ] || { echo "$1: apt here knows no mirror of Debian" >&2; exit 1; }
  rm -rf "$3"
  mkdir -p "$3"/{files,apt/{lists,archives}/partial,apt/etc/{apt.conf.d,preferences.d}}
  : >"$3/apt/status"
  echo "deb $mirror $2 main" >"$3/apt/etc/sources.list"
  suite_try "the packages of $2 can't be listed" suite apt-get -q update
}

# suite PROGRAM WORDS...: runs apt-get or apt-cache for that release.
suite() {
  local at=$suite_folder/apt
  "$1" -o Dir::Etc="$at/etc" -o Dir::Etc::trusted=/etc/apt/trusted.gpg \
    -o Dir::Etc::trustedparts=/etc/apt/trusted.gpg.d -o Dir::State="$at" -o Dir::State::status="$at/status" \
    -o Dir::Cache="$at" -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false \
    -o Debug::NoLocking=true "${@:2}"
}

# suite_try WHAT COMMAND...: runs a command into FOLDER/log; on failure, prints what failed and the last output.
suite_try() {
  "${@:2}" >>"$suite_folder/log" 2>&1 ||
    { echo "$suite_name: $1:" >&2; tail -n 5 "$suite_folder/log" >&2; exit 1; }
}

# suite_unpack: unpacks all fetched packages.
suite_unpack() {
  local package
  for package in "$suite_folder"/apt/archives/*.deb; do dpkg-deb -x "$package" "$suite_folder/files"; done
  rm -rf "$suite_folder/apt"
}
