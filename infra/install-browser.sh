#!/bin/sh
# Installs Chromium, with which the report is checked, where this user may; otherwise says how.
set -eu
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "error: the browser check needs Chromium. Install it, for example:" >&2
    echo "  sudo apt-get install -y --no-install-recommends chromium   # Debian" >&2
    echo "  sudo dnf install -y chromium                                  # Fedora" >&2
    exit 2
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
