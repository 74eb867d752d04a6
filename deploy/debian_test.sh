#!/usr/bin/env bash
# Tests the wheels with the Python of a Debian release, in a tree of its packages: another version of Python, or another
# processor under qemu. Needs root and debootstrap; another processor also qemu-user-static and pip with the same Python.
#
#   deploy/debian_test.sh DIST RELEASE ARCHITECTURE PYTHON FOLDER [TEST...]
#   deploy/debian_test.sh dist bookworm arm64 python3.11 /tmp/arm64 tests/serve/native/test_operators.py
#
# FOLDER keeps the tree. Packages are unpacked and not configured, which their Python does not need. TEST, for another
# processor, is a file of tests that pytest runs in the tree with the installed package.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
dist=$(realpath "$1")
release=$2 architecture=$3 python=$4
mkdir -p "$5"
tree=$(realpath "$5")
started=$SECONDS
if [ ! -x "$tree/usr/bin/$python" ]; then
  debootstrap --download-only --variant=minbase --arch="$architecture" --include="$python,$python-venv" "$release" "$tree" \
    >"$tree.log" || { cat "$tree.log" >&2 && exit 1; }
  for name in bin sbin lib lib64; do
    mkdir -p "$tree/usr/$name"
    ln -sfn "usr/$name" "$tree/$name"
  done
  mkdir -p "$tree/dev" "$tree/proc" "$tree/tmp"
  for package in "$tree"/var/cache/apt/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink --directory "$tree"
  done
  echo "$release for $architecture: unpacked in $((SECONDS - started)) s"
fi
cp "$here/install_test.sh" "$here/serve_test.sh" "$here/../constraints.txt" "$tree/root/"
rm -rf "$tree/root/dist" "$tree/root/installed"
cp -r "$dist" "$tree/root/dist"
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
  if [ -e "$file" ]; then
    mkdir -p "$tree$(dirname "$file")"
    cp --dereference "$file" "$tree$file"
  fi
done

# in_tree COMMAND: in namespaces of its own, so that neither mounts nor processes stay.
in_tree() {
  # shellcheck disable=SC2016 # the inner shell expands the arguments
  unshare --mount --pid --fork bash -c 'mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" &&
    exec chroot "$0" /usr/bin/env --ignore-environment HOME=/root PATH=/usr/bin:/bin LC_ALL=C.UTF-8 "$@"' "$tree" "$@"
}

if [ "$architecture" = "$(dpkg --print-architecture)" ]; then
  in_tree env PIP_CONSTRAINT=/root/constraints.txt PYTHON="$python" /root/install_test.sh /root/dist /root/installed
  exit
fi
# The kernel starts the emulator for programs of the other processor, also in the tree.
qemu=/proc/sys/fs/binfmt_misc/qemu-aarch64
mountpoint --quiet /proc/sys/fs/binfmt_misc || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
[ -e "$qemu" ] || cat /usr/lib/binfmt.d/qemu-aarch64.conf >"${qemu%/*}/register"
# pip runs here, because it takes many times as long under the emulator.
started=$SECONDS
platforms=()
for glibc in 17 24 26 27 28 31 34; do
  platforms+=(--platform "manylinux_2_${glibc}_aarch64")
done
"$python" -m pip install --quiet --quiet --disable-pip-version-check --constraint "$here/../constraints.txt" --no-compile \
  --only-binary :all: "${platforms[@]}" --platform manylinux2014_aarch64 \
  --target "$tree/root/installed" --find-links "$dist" 'dragoman[cpu]' \
  hypothesis jinja2 matplotlib pytest pytest-timeout pytest-xdist
echo "aarch64 wheels installed in $((SECONDS - started)) s"
in_tree env PYTHONPATH=/root/installed /root/serve_test.sh "$python"
if [ $# -gt 5 ]; then
  rm -rf "$tree/root/checkout"
  mkdir "$tree/root/checkout"
  git -C "$here/.." archive HEAD bundles protos pyproject.toml tests | tar --extract --directory "$tree/root/checkout"
  in_tree env --chdir=/root/checkout PYTHONPATH=/root/installed "$python" -m pytest -q -p no:cacheprovider "${@:6}"
fi
