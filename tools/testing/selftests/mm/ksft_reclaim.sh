#!/bin/sh -e
# SPDX-License-Identifier: GPL-2.0-only

./run_vmtests.sh -t reclaim
