/* SPDX-License-Identifier: GPL-2.0-only */
/* What the plugin's files share: a vCPU's counters, and what each file offers the others. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "qemu-api.h"

#define VCPUS_MAX	64

/*
 * One vCPU's part of the scoreboard; only its own thread writes to it. QEMU's code adds to budget, and in a profile to
 * symbol[], for each block of instructions; string instructions add more.
 */
struct vcpu {
	/* Instructions since the round began; base + budget: since the guest was started. */
	uint64_t budget;
	uint64_t base;
	/* Of a profile: instructions in the slow path of spinlocks. */
	uint64_t waiting;
	/* Of a profile: instructions by symbol since the task that runs was switched to. */
	uint64_t symbol[];
};

struct vcpu *vcpu_of(unsigned int vcpu);
static inline uint64_t vcpu_instructions(unsigned int vcpu)
{
	return vcpu_of(vcpu)->base + vcpu_of(vcpu)->budget;
}

/* What a callback may read of the guest; only in the vCPU's own thread, in a callback with QEMU_PLUGIN_CB_R_REGS. */
enum argument { FIRST, SECOND, COUNT, STACK, ARGUMENTS };
void guest_registers(void);
uint64_t guest_argument(enum argument which);
bool guest_read(uint64_t address, void *to, size_t length);

/* rounds.c */
struct round_count {
	uint64_t rounds;
	/* What the host took for them. */
	uint64_t host_us;
};

/* Instructions of a vCPU in a round, and what a round is on the guest's clock. */
extern unsigned int rounds_quantum;
extern unsigned int rounds_ns;

bool rounds_start(void);
void rounds_on(bool on);
struct round_count rounds_count(void);
void rounds_arrive(unsigned int vcpu);
void rounds_running(unsigned int vcpu, bool runs);

/* strings.c */
unsigned int string_width(const uint8_t *code, size_t length);
uint64_t string_cost(uint64_t count, unsigned int width);

/* symbols.c */
#define SYMBOL_USER	0
#define SYMBOL_OTHER	1

bool symbols_read(const char *path);
unsigned int symbols_count(void);
unsigned int symbol_at(uint64_t address);
uint64_t symbol_address(unsigned int symbol);
const char *symbol_name(unsigned int symbol);
unsigned int symbol_named(const char *name);
uint64_t symbol_init_task(void);

/* threads.c */
void threads_init(unsigned int vcpu);
void threads_switch(unsigned int vcpu, void *unused);
void threads_catch_up(unsigned int vcpu);
void threads_begin(void);
bool threads_measured(unsigned int vcpu);
void threads_write(FILE *out, bool profile);

/* waiting.c */
void waiting_enter(unsigned int vcpu, void *unused);
void waiting_begin(unsigned int vcpu);
void waiting_write(FILE *out);

/* plugin.c */
extern unsigned int vcpus;
extern bool profile;

#endif
