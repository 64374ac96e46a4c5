#!/usr/bin/env bash
# Build the free-threaded CPython 3.13 from Debian's own source package, unless it is there already.
#
#     tools/free_threaded_python.sh [--tsan] [PREFIX]
#
# The last line on stdout is the path of the interpreter; everything else goes to stderr.  PREFIX defaults to
# ${FILCH_PYTHON_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/filch/python3.13t}, outside the checkout, kept between runs.
# --tsan builds with the thread sanitizer, by default into a prefix of its own (the same with "-tsan" at the end).
#
# The source comes from the mirror that apt is configured for, suite trixie, by way of apt directories of its own, so
# that the system's lists stay as they are.  The result is moved to PREFIX in one step, after it has been tried out.
set -euo pipefail

readonly suite=trixie
readonly package=python3.13
readonly name=python3.13t
readonly build_packages=(gcc make pkg-config xz-utils dpkg-dev libssl-dev zlib1g-dev libffi-dev libbz2-dev liblzma-dev
    libsqlite3-dev)

say() { printf '%s\n' "$*" >&2; }
die() { say "free_threaded_python.sh: $*"; exit 1; }

usage() {
    say "usage: tools/free_threaded_python.sh [--tsan] [PREFIX]"
    exit 2
}

# Print the URI of the Debian mirror that apt uses for the system's own release.  apt itself reads its configuration
# here, so both forms of source files are understood.  Options for apt-get may be given.
find_mirror() {
    local codename
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    # shellcheck disable=SC2016  # $(NAME) is apt's own notation
    apt-get "$@" indextargets --format '$(CREATED_BY) $(COMPONENT) $(RELEASE) $(REPO_URI)' |
        awk -v codename="$codename" '
            BEGIN { split(codename " stable oldstable testing unstable sid", names); for (i in names) wanted[names[i]] }
            $1 == "Packages" && $2 == "main" && $3 in wanted && !found { found = 1; print $4 }'
}

# Set "apt" to options for apt-get that give it state and cache folders of its own below $1.  As root, apt would hand the download to a
# user of its own, who may not enter a private cache folder.
separate_apt() {
    mkdir -p "$1"/{state/lists/partial,cache/archives/partial}
    apt=(-q -o "Dir::State=$1/state" -o "Dir::Cache=$1/cache" -o "Acquire::Languages=none" -o "Acquire::Retries=3")
    [ "$(id -u)" -ne 0 ] || apt+=(-o "APT::Sandbox::User=root")
}

install_build_packages() {
    local missing=() one
    for one in "${build_packages[@]}"; do
        dpkg-query -W -f '${Status}\n' "$one" 2>/dev/null | grep -q 'ok installed' || missing+=("$one")
    done
    [ ${#missing[@]} -eq 0 ] && return
    [ "$(id -u)" -eq 0 ] || die "these packages are needed to build Python, please install them: ${missing[*]}"
    say "installing ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get -q -y install "${missing[@]}" >&2 ||
        { apt-get -q update >&2 && DEBIAN_FRONTEND=noninteractive apt-get -q -y install "${missing[@]}" >&2; } ||
        die "apt-get could not install ${missing[*]}"
}

# Leave the upstream source in $1/source.
fetch_source() {
    local work=$1 uri apt options="" keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    uri=$(find_mirror)
    if [ -z "$uri" ]; then # apt lists nothing before its first update
        separate_apt "$work/system"
        apt-get "${apt[@]}" update || true
        uri=$(find_mirror "${apt[@]}")
    fi
    [ -n "$uri" ] || die "no Debian mirror for this release is in apt's configuration, so there is nowhere to take the source from"
    [ ! -e "$keyring" ] || options="[signed-by=$keyring] "
    separate_apt "$work/apt"
    printf 'deb-src %s%s %s main\n' "$options" "$uri" "$suite" >"$work/apt/sources.list"
    apt+=(-o "Dir::Etc::sourcelist=$work/apt/sources.list" -o "Dir::Etc::sourceparts=/dev/null")
    mkdir "$work/download" "$work/source"
    apt-get "${apt[@]}" update
    (cd "$work/download" && apt-get "${apt[@]}" source --download-only "$package")
    tar -xJf "$work/download/$package"_*.orig.tar.xz -C "$work/source" --strip-components=1
}

configure_and_install() {
    local work=$1 prefix=$2 runner=() install_options=()
    local options=(--disable-gil "--prefix=$prefix")
    if [ "$tsan" = yes ]; then
        options+=(--with-thread-sanitizer)
        # The sanitizer's fixed memory layout and a strongly randomised address space exclude each other; and a race
        # that it finds in CPython itself while CPython builds must not stop the build.
        runner=(setarch "$(uname -m)" -R)
        # Compiling all modules in advance would take that interpreter half an hour; it does so as it imports them.
        install_options=("COMPILEALL_OPTS=-l")
        export TSAN_OPTIONS="exitcode=0 ${TSAN_OPTIONS:-}"
    fi
    cd "$work/source"
    "${runner[@]}" ./configure "${options[@]}"
    "${runner[@]}" make -j"$(nproc)"
    "${runner[@]}" make install "DESTDIR=$work/stage" "${install_options[@]}"
    "${runner[@]}" "$work/stage$prefix/bin/$name" -c '
import bz2, ctypes, lzma, sqlite3, ssl, sys, zlib
if sys._is_gil_enabled():
    raise SystemExit("the interpreter that was built has a GIL")'
}

tsan=no
prefix=""
for argument in "$@"; do
    case $argument in
        --tsan) tsan=yes ;;
        -*) usage ;;
        *) [ -z "$prefix" ] || usage; prefix=$argument ;;
    esac
done
if [ -z "$prefix" ]; then
    prefix=${FILCH_PYTHON_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/filch/$name}
    [ "$tsan" = no ] || prefix=$prefix-tsan
fi
prefix=$(realpath -m -- "$prefix")

if [ -x "$prefix/bin/$name" ]; then
    say "already there"
    printf '%s\n' "$prefix/bin/$name"
    exit 0
fi

[[ $prefix != *[[:space:]]* ]] || die "the prefix may not contain blanks: '$prefix'"
[ ! -e "$prefix" ] || rmdir -- "$prefix" 2>/dev/null || die "$prefix is there and holds something else; give another prefix"
command -v apt-get >/dev/null || die "this needs Debian's apt-get; build CPython 3.13 with --disable-gil yourself and point FILCH_PYTHON_HOME at its prefix"

mkdir -p "$(dirname "$prefix")"
exec 9>"$prefix.lock"
if ! flock -n 9; then
    say "another build for $prefix is under way, waiting for it"
    flock 9
    if [ -x "$prefix/bin/$name" ]; then
        printf '%s\n' "$prefix/bin/$name"
        exit 0
    fi
fi

log=$prefix.log
work=$prefix.build
job=""
clean_up() {
    [ -z "$job" ] || kill -- "-$job" 2>/dev/null || true
    rm -rf -- "$work"
}
trap clean_up EXIT
rm -rf -- "$work"
mkdir "$work"

# Run a stage in a shell of its own, so that "set -e" holds inside it, and in a process group of its own, so that
# clean_up can end all of it; what it prints goes to the log.
stage() {
    local title=$1 status=0
    shift
    say "$title"
    set -m
    (set -e; "$@") </dev/null >>"$log" 2>&1 9>&- &
    job=$!
    set +m
    wait "$job" || status=$?
    job=""
    if [ $status -ne 0 ]; then
        say "--- the last lines of $log"
        tail -n 40 "$log" >&2
        die "$title: failed with status $status"
    fi
}

: >"$log"
install_build_packages
stage "fetching the source of $package ($suite)" fetch_source "$work"
stage "building it, which takes some minutes (log: $log)" configure_and_install "$work" "$prefix"
mv -- "$work/stage$prefix" "$prefix"
printf '%s\n' "$prefix/bin/$name"
