// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which thread executed how many instructions, in a profile by function: counted where the kernel switches tasks.
 *
 * Threads are told apart by their names, without what follows a slash: all readers are one, kworkers too. Each vCPU
 * counts for itself. A measurement that begins is seen by each vCPU in its own thread, within a quantum.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"

#define NAMES_MAX	128
#define COMM		16
/* How much of a task_struct is looked through for its name. */
#define TASK_BYTES	16384

/* Names are only ever added, under the lock; the last one takes what has no room. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char names[NAMES_MAX][COMM] = { "unknown" };
static unsigned int known = 1;
static unsigned int comm_offset;

static unsigned int measurement;

/* Changed by its own vCPU only, read by the one that ends a measurement. */
struct account {
	pthread_mutex_t lock;
	/* The measurement that this is part of, the thread that runs, and the instructions when it was switched to. */
	unsigned int measurement;
	unsigned int thread;
	uint64_t since;
	uint64_t first;
	uint64_t instructions[NAMES_MAX];
	/* By function; for threads that have run. */
	uint64_t *symbols[NAMES_MAX];
};

static struct account accounts[VCPUS_MAX];

/* A vCPU is there. */
void threads_init(unsigned int vcpu)
{
	pthread_mutex_init(&accounts[vcpu].lock, NULL);
	accounts[vcpu].since = vcpu_instructions(vcpu);
}

/* Whether a vCPU has executed anything since the measurement began. */
bool threads_measured(unsigned int vcpu)
{
	return __atomic_load_n(&accounts[vcpu].measurement, __ATOMIC_ACQUIRE) == measurement;
}

/* Add what the thread that runs has done since it was switched to. With the account's lock held. */
static void settle(unsigned int vcpu)
{
	struct account *own = &accounts[vcpu];
	uint64_t now = vcpu_instructions(vcpu), *sum;
	struct vcpu *counters = vcpu_of(vcpu);

	own->instructions[own->thread] += now - own->since;
	own->since = now;
	if (!profile)
		return;
	sum = own->symbols[own->thread];
	if (!sum)
		sum = own->symbols[own->thread] = calloc(symbols_count(), sizeof(*sum));
	for (unsigned int i = 0; i < symbols_count(); i++)
		sum[i] += counters->symbol[i];
	memset(counters->symbol, 0, symbols_count() * sizeof(*counters->symbol));
}

/* In a vCPU's own thread: if a measurement has begun forget what was before. */
void threads_catch_up(unsigned int vcpu)
{
	struct account *own = &accounts[vcpu];
	unsigned int wanted = __atomic_load_n(&measurement, __ATOMIC_ACQUIRE);

	if (own->measurement == wanted)
		return;
	pthread_mutex_lock(&own->lock);
	settle(vcpu);
	own->first = own->since;
	memset(own->instructions, 0, sizeof(own->instructions));
	for (unsigned int i = 0; profile && i < NAMES_MAX; i++)
		if (own->symbols[i])
			memset(own->symbols[i], 0, symbols_count() * sizeof(*own->symbols[i]));
	if (profile)
		waiting_begin(vcpu);
	__atomic_store_n(&own->measurement, wanted, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&own->lock);
}

/* Where a task_struct has its name: the first task is called swapper. */
static unsigned int find_comm(void)
{
	static char task[TASK_BYTES];
	char *found;

	/* The task_struct may end with a page that is not there. */
	for (size_t length = TASK_BYTES; length >= 1024; length /= 2) {
		if (guest_read(symbol_init_task(), task, length)) {
			found = memmem(task, length, "swapper", 7);
			return found ? found - task : 0;
		}
	}
	return 0;
}

static unsigned int number_of(uint64_t task)
{
	char comm[COMM] = "";
	unsigned int i;

	if (!comm_offset || !guest_read(task + comm_offset, comm, COMM))
		return 0;
	comm[COMM - 1] = 0;
	comm[strcspn(comm, "/")] = 0;
	for (i = 0; i < known; i++)
		if (!strcmp(names[i], comm))
			return i;
	pthread_mutex_lock(&lock);
	for (i = 0; i < known && strcmp(names[i], comm); i++)
		;
	if (i == known && known < NAMES_MAX) {
		strcpy(names[i], i == NAMES_MAX - 1 ? "others" : comm);
		__atomic_store_n(&known, known + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return i < NAMES_MAX ? i : NAMES_MAX - 1;
}

/* The kernel switches tasks: the second argument is the one that comes. */
void threads_switch(unsigned int vcpu, void *unused)
{
	struct account *own = &accounts[vcpu];
	unsigned int next;

	(void)unused;
	if (!comm_offset)
		comm_offset = find_comm();
	next = number_of(guest_argument(SECOND));
	threads_catch_up(vcpu);
	pthread_mutex_lock(&own->lock);
	settle(vcpu);
	own->thread = next;
	pthread_mutex_unlock(&own->lock);
}

/* A measurement begins. */
void threads_begin(void)
{
	__atomic_add_fetch(&measurement, 1, __ATOMIC_RELEASE);
}

/* One row for each vCPU, thread and function that has executed something since. */
static void write_rows(FILE *out, unsigned int vcpu, unsigned int thread, bool *first)
{
	const struct account *one = &accounts[vcpu];

	for (unsigned int i = 0; i < symbols_count(); i++) {
		uint64_t n = one->symbols[thread] ? one->symbols[thread][i] : 0;

		n += one->thread == thread ? vcpu_of(vcpu)->symbol[i] : 0;
		if (n) {
			fprintf(out, "%s[%u,\"%s\",\"%s\",%lu]", *first ? "" : ",", vcpu, names[thread], symbol_name(i), n);
			*first = false;
		}
	}
}

/* What was counted since the measurement began, as members of a JSON object. Other vCPUs may go on meanwhile. */
void threads_write(FILE *out, bool rows)
{
	bool first = true;

	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++)
		pthread_mutex_lock(&accounts[vcpu].lock);
	fputs("\"vcpus\":[", out);
	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++)
		fprintf(out, "%s%lu", vcpu ? "," : "",
			threads_measured(vcpu) ? vcpu_instructions(vcpu) - accounts[vcpu].first : 0);
	fputs("],\"threads\":{", out);
	for (unsigned int thread = 0; thread < known; thread++) {
		uint64_t sum = 0;

		for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++) {
			struct account *one = &accounts[vcpu];

			if (!threads_measured(vcpu))
				continue;
			sum += one->instructions[thread];
			if (one->thread == thread)
				sum += vcpu_instructions(vcpu) - one->since;
		}
		if (sum) {
			fprintf(out, "%s\"%s\":%lu", first ? "" : ",", names[thread], sum);
			first = false;
		}
	}
	fputc('}', out);
	if (rows) {
		fputs(",\"profile\":[", out);
		first = true;
		for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++)
			for (unsigned int thread = 0; thread < known; thread++)
				if (threads_measured(vcpu))
					write_rows(out, vcpu, thread, &first);
		fputc(']', out);
	}
	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++)
		pthread_mutex_unlock(&accounts[vcpu].lock);
}
