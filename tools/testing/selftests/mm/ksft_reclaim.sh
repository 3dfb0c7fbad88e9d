#!/bin/sh -e
# SPDX-License-Identifier: GPL-2.0-only

# Arguments go to run_vmtests.sh; with -d it also runs tests that have a task killed.
./run_vmtests.sh -t reclaim "$@"
