#!/bin/sh -e
# SPDX-License-Identifier: GPL-2.0-only

# With -d, reclaim_pcp_drain runs, too: a task is killed there.
./run_vmtests.sh -t reclaim "$@"
