#!/usr/bin/env bash
# An image of Weir without Docker: a root file system of Debian's packages, by mmdebstrap, and the wheel in it.
#
#   deploy/image.sh dist/weir_proxy-0.2.0-py3-none-any.whl weir.tar     as root, or with user namespaces
#   podman import weir.tar weir                                         as one image for containers
#
# EXTRAS and SUITE change what is inside. The steps are those of deploy/Dockerfile: an environment of its own in
# /opt/weir, a user without rights, and one folder that this user may write to. pip runs inside and needs the package
# index: its settings come from the environment (PIP_INDEX_URL and others), and it trusts the authorities of this machine.
set -euo pipefail

wheel=$1 out=$2
extras=${EXTRAS:-guards,redis,postgres,otel,uvloop}
suite=${SUITE:-bookworm}
authorities=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/build"
cp "$wheel" "$scratch/build/"
cp "$authorities" "$scratch/build/authorities.crt"
export PIP_CERT=/tmp/build/authorities.crt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset REQUESTS_CA_BUNDLE CURL_CA_BUNDLE # each would count before PIP_CERT

# In the image: nothing that installs, and no documentation.
mmdebstrap --quiet --variant=minbase --format=tar \
  --include=python3-minimal,python3,python3-venv,ca-certificates \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook="copy-in $scratch/build /tmp" \
  --customize-hook='chroot "$1" python3 -m venv /opt/weir' \
  --customize-hook="chroot \"\$1\" /opt/weir/bin/pip install --quiet '/tmp/build/$(basename "$wheel")[$extras]'" \
  --customize-hook='chroot "$1" /opt/weir/bin/python -m compileall -q /opt/weir/lib' \
  --customize-hook='chroot "$1" /opt/weir/bin/pip uninstall --quiet --yes pip setuptools' \
  --customize-hook='chroot "$1" groupadd --gid 10001 weir' \
  --customize-hook='chroot "$1" useradd --uid 10001 --gid weir --no-create-home --home-dir /var/lib/weir --shell /usr/sbin/nologin weir' \
  --customize-hook='chroot "$1" install -d -o weir -g weir -m 0750 /var/lib/weir' \
  --customize-hook='chroot "$1" dpkg-query --show > "$1/opt/weir/debian-packages.txt"' \
  --customize-hook='chroot "$1" apt-get --quiet --quiet --yes --allow-remove-essential purge "^python3[.0-9]*-venv\$" "^python3-(pip|setuptools)-whl\$" apt' \
  --customize-hook='find "$1" -xdev -perm /6000 -exec chmod a-s {} +' \
  --customize-hook='rm -rf "$1/tmp/build" "$1"/var/lib/apt/* "$1"/var/cache/*' \
  "$suite" "$out"
