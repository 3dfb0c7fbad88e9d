// SPDX-License-Identifier: GPL-2.0-only
/* Who waited for which spinlock, in instructions: told at each entry of the slow path by its argument and the stack. */
#include <string.h>

#include "lockstep.h"

#define ROWS		(1 << 13)
/* So many words of the stack are looked through for a caller outside of the lock functions. */
#define STACK_WORDS	24

struct row {
	uint64_t lock;
	unsigned int caller;
	uint64_t instructions;
	uint64_t times;
};

static struct waits {
	struct row *current;
	/* Instructions in the slow path until the current row's began. */
	uint64_t since;
	struct row rows[ROWS];
} waits[VCPUS_MAX];

static bool is_lock_function(const char *name)
{
	static const char * const parts[] = { "_raw_spin_", "_raw_read_", "_raw_write_", "queued_spin_", "queued_read_",
					      "queued_write_", "do_raw_spin_", "folio_lruvec_lock", "lruvec_lock" };

	for (unsigned int i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (strstr(name, parts[i]))
			return true;
	return false;
}

static unsigned int caller(void)
{
	uint64_t stack[STACK_WORDS];

	if (!guest_read(guest_argument(STACK), stack, sizeof(stack)))
		return SYMBOL_OTHER;
	for (unsigned int i = 0; i < STACK_WORDS; i++) {
		unsigned int symbol = symbol_at(stack[i]);

		/* Beyond the last function there are data. */
		if (symbol > SYMBOL_OTHER && symbol < symbols_count() - 1 &&
		    !is_lock_function(symbol_name(symbol)))
			return symbol;
	}
	return SYMBOL_OTHER;
}

static void settle(unsigned int vcpu)
{
	struct waits *own = &waits[vcpu];
	uint64_t now = vcpu_of(vcpu)->waiting;

	if (own->current)
		own->current->instructions += now - own->since;
	own->since = now;
}

/* At the entry of the slow path. */
void waiting_enter(unsigned int vcpu, void *unused)
{
	uint64_t lock = guest_argument(FIRST);
	unsigned int who = caller();
	struct waits *own = &waits[vcpu];
	unsigned int i = (lock / 8 * 31 + who) % ROWS;

	(void)unused;
	settle(vcpu);
	for (unsigned int tries = 0; tries < ROWS / 2; tries++, i = (i + 1) % ROWS) {
		struct row *row = &own->rows[i];

		if (row->times && (row->lock != lock || row->caller != who))
			continue;
		row->lock = lock;
		row->caller = who;
		row->times++;
		own->current = row;
		return;
	}
	own->current = NULL;
}

/* A measurement begins; in the vCPU's own thread. */
void waiting_begin(unsigned int vcpu)
{
	struct waits *own = &waits[vcpu];

	memset(own->rows, 0, sizeof(own->rows));
	own->current = NULL;
	own->since = vcpu_of(vcpu)->waiting;
}

/* As a member of a JSON object: lock, caller, instructions, times. */
void waiting_write(FILE *out)
{
	bool first = true;

	fputs(",\"waiting\":[", out);
	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++) {
		if (!threads_measured(vcpu))
			continue;
		for (unsigned int i = 0; i < ROWS; i++) {
			const struct row *row = &waits[vcpu].rows[i];

			if (!row->times)
				continue;
			fprintf(out, "%s[\"%lx\",\"%s\",%lu,%lu]", first ? "" : ",", row->lock,
				symbol_name(row->caller), row->instructions, row->times);
			first = false;
		}
	}
	fputc(']', out);
}
