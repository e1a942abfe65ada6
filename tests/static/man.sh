#!/bin/sh
# Fails on any warning of mandoc in the manual pages.
set -eu
cd "$(dirname "$0")/../.."
mandoc -T lint -W warning man/*.[135]
