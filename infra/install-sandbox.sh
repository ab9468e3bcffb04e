#!/bin/sh
# Installs bubblewrap (and util-linux for setpriv) where this user may; otherwise says how.
set -eu
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "error: the sandbox needs bubblewrap and setpriv. Install them, for example:" >&2
    echo "  sudo apt-get install -y --no-install-recommends bubblewrap util-linux   # Debian, Ubuntu" >&2
    echo "  sudo dnf install -y bubblewrap util-linux                                  # Fedora" >&2
    exit 2
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends bubblewrap util-linux >/dev/null
