#!/bin/sh -e
# SPDX-License-Identifier: GPL-2.0-only

# Arguments go to run_vmtests.sh; with -d it also runs a test that fills a whole node.
./run_vmtests.sh -t reclaim "$@"
