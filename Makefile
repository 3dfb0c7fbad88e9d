# SPDX-License-Identifier: GPL-2.0-only
# The verbs. Each runs a module of scripts/lr; options are make variables, as in: make boot KERNEL=stock RUN='uname -r'

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
# A kernel's make started by a verb must not take this one's options for its own.
unexport MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES

# A misspelt option would be ignored, and the verb do something else than was asked for. A verb's options are the words
# before a = in its line of `make help`; those of `tree` go with every verb. What is set before `make` is not looked at.
given := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
# Their values are for the verb as they are: make would expand a $ in them, and $(shell ...) would run.
$(foreach name,$(given),$(eval override $(name) := $$(value $(name)))$(eval export $(name)))
ifneq ($(given),)
verbs := $(or $(MAKECMDGOALS),help)
asked := tree $(verbs) $(if $(filter test,$(verbs)),kunit selftest)
options := $(shell sed -nE $(foreach verb,$(asked),-e 's/^$(verb): .*\#\# //p') $(firstword $(MAKEFILE_LIST)) | grep -oE '[A-Z_]+=')
$(foreach name,$(given),$(if $(filter $(name)=,$(options)),,$(error $(verbs) has no option $(name); `make help` shows each verb with its own)))
endif

lr := scripts/setup -q && PYTHONPATH=scripts build/venv/bin/python -m lr

.PHONY: help setup tree save build boot demo kunit selftest check bisect ablate stable deb mbox soak test bench profile report clean

help: ## this list
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+): .*## /  \1\t/' | expand -t 12
	@echo
	@echo 'A first look: make demo.  Working on the series: make tree, commit in build/linux, make save, make check.'

setup: ## install what is missing: Debian packages, and a Python environment in build/venv
	@scripts/setup

tree: ## compose the series into build/linux  (BASE_TARBALL=file | BASE_GIT=clone REV=v7.3.4 | BASE=locked)
	@$(lr) tree

save: ## turn the commits of build/linux back into series/ and overlay files  (FORCE=1)
	@$(lr) save

build: ## build the kernel  (KERNEL=series|stock, DEBUG=1|races)
	@$(lr) build

boot: ## a shell in the kernel  (KERNEL= DEBUG=1|races CPUS=4 MEM=2G NODES=2 DISK=xfs:1G RUN='command' TIMEOUT=600)
	@$(lr) boot

demo: ## the tour, from nothing: build stock and ours, run the same load on both and on one thread and four, show what each did  (TIMEOUT=)
	@$(lr) demo

kunit: ## our KUnit suites under UML and QEMU  (FILTER=pattern WHERE=uml|qemu TIMEOUT=)
	@$(lr) kunit

selftest: ## our kselftests in guests: lru_gen on and off, one node and two, some on four, with a node that goes  (TEST=PROGRAM or PROGRAM:FIXTURE[.VARIANT].CASE, MATRIX="lru_gen=on,nodes=1 lru_gen=off,nodes=2", KERNEL= DEBUG=1|races TIMEOUT=)
	@$(lr) selftest

check: ## a minute or two, builds nothing: round trip, ownership, checkpatch, linters, the tools' own tests
	@$(lr) check

bisect: ## build every commit of the series by itself
	@$(lr) bisect

ablate: ## undo one mechanism at a time; the tests it names must fail  (ABLATION=name BUDGET=minutes TIMEOUT=)
	@$(lr) ablate

stable: ## the fix meant for stable kernels, on one: stock loses the data, fixed it does not  (BASE=6.12 TIMEOUT=)
	@$(lr) stable

deb: ## Debian packages of the series kernel for a machine of your own  (CONFIG=file, default the running kernel's, else Debian's)
	@$(lr) deb

mbox: ## a section as mails, nothing is sent  (SECTION=name TRAILERS=file; BRANCH_IN=clone REV=v7.3.4: as a branch there)
	@$(lr) mbox

soak: ## hours of storm: knobs, CPUs, nodes, cgroups, swap, disks beside hogs and files that are compared  (HOURS=1 SEED=1 BUGS=1; KERNELS= "stock series", default series; PART= "storm faults others", default storm; DEBUG= "0 1 races", default 0)
	@$(lr) soak

test: ## check, kunit and selftest; closes with N passed, N failed, N skipped
	@$(lr) test

bench: ## the lab: scenarios on several kernels in turn, as tables  (SCENARIO= VARIANT= KERNELS="stock series", default; PAIRS=3, default, or 1 with QUICK=1; LOCKSTEP=0 QUANTUM=1000)
	@$(lr) bench

profile: ## instructions by function, thread and CPU, and who waits for which spinlock  (SCENARIO=kswapd-scaling, default; VARIANT= KERNELS= QUICK=0 ROWS=30 QUANTUM=1000)
	@$(lr) profile

report: ## the lab's samples as one HTML page, build/bench/report.html
	@$(lr) report

clean: ## empty build/: kernels, objects, packages, the venv; unsaved work, edited mails and samples of bench and soak stay  (FORCE=1: those go, too)
	@PYTHONPATH=scripts python3 -B -m lr clean
