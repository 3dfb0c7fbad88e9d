# SPDX-License-Identifier: GPL-2.0-only
"""The lab: scenarios run on several kernels in turn, their samples kept, compared and reported."""
