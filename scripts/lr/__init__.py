# SPDX-License-Identifier: GPL-2.0-only
"""The project's tools: one module a concern, one verb of the Makefile each or a part that verbs share."""
