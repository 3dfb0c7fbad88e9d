#!/bin/sh -e
# SPDX-License-Identifier: GPL-2.0-only

# Arguments go to run_vmtests.sh; with -d it also runs the test that fills a node until a task is killed.
./run_vmtests.sh -t reclaim "$@"
