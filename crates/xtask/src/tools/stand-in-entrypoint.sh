#!/bin/sh
# What the official image's entry point does: drop to the user envoy, then run the command.
set -e
if [ "${1#-}" != "$1" ]; then set -- envoy "$@"; fi
if [ "$ENVOY_UID" != "0" ] && [ "$(id -u)" = 0 ]; then
    if [ -n "$ENVOY_UID" ]; then usermod -u "$ENVOY_UID" envoy; fi
    if [ -n "$ENVOY_GID" ]; then groupmod -g "$ENVOY_GID" envoy; fi
    chown envoy:envoy /dev/stdout /dev/stderr
    exec su-exec envoy "$@"
fi
exec "$@"
