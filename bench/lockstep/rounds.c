// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rounds: every vCPU that is not halted executes a quantum of instructions, then waits until all others have.
 *
 * So no vCPU is ever more than a quantum ahead of another, whoever holds a lock, and however few CPUs the host has. (A
 * string instruction is done at once and may be several quanta long; the vCPU then sits out as many rounds.)
 * Rounds are the unit of time, for the guest too: in lockstep QEMU's clock, and with it the guest's timers and its
 * HPET, goes on by so many nanoseconds a round, however long the host took for the round. The plugin is preloaded and
 * stands in for clock_gettime(). What the guest must not use is the TSC, which is the host's: clearcpuid=tsc.
 *
 * The lock is a leaf. QEMU calls rounds_running() with its own big lock held, and rounds_arrive() without.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "lockstep.h"

/*
 * A vCPU that waits counts as running for QEMU, so that another one's exclusive section would wait for it for ever.
 * After this time it executes one more block, at whose end QEMU can stop it.
 */
#define PATIENCE_NS	5000000

/*
 * What a round takes of the host's time at least: disks, and vCPUs that are woken, need some, which must not be many
 * rounds. Less while all vCPUs are halted: then only timers are waited for. And never less than it is on the guest's
 * clock: QEMU sleeps in the host's time for its timers, and would be late if the guest's clock went faster. (When the
 * guest's clock is behind, QEMU wakes early, looks, and sleeps again; its thread pool's workers give up being idle too
 * soon and are made anew.)
 */
#define FLOOR_NS	200000
#define FLOOR_IDLE_NS	50000

unsigned int rounds_quantum = 5000;
unsigned int rounds_ns = 50000;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The conductor waits for the last vCPU; vCPUs wait for the next round. */
static pthread_cond_t complete;
static pthread_cond_t turn;

/* All under the lock. */
static bool on;
static uint64_t number = 1;
static unsigned int running, arrived;
static bool runs[VCPUS_MAX];
/* The last round that a vCPU has arrived in. */
static uint64_t arrived_in[VCPUS_MAX];
static struct round_count count;

/*
 * QEMU's clock: the host's and an offset, or in lockstep what rounds have made of it. Written under the lock. Who reads
 * while lockstep is switched may see the parts of two states: last keeps the clock from going back.
 */
static _Atomic bool by_rounds;
static _Atomic int64_t offset;
static _Atomic uint64_t guest_now, last;

static int (*host_clock)(clockid_t clock, struct timespec *t);

static uint64_t host_ns(void)
{
	struct timespec t;

	if (!host_clock)
		host_clock = dlsym(RTLD_NEXT, "clock_gettime");
	host_clock(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static uint64_t guest_ns(void)
{
	uint64_t now = by_rounds ? guest_now : host_ns() + offset, before = last;

	while (before < now && !atomic_compare_exchange_weak(&last, &before, now))
		;
	return before < now ? now : before;
}

static struct timespec at(uint64_t ns)
{
	return (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

/* Called by QEMU in place of the C library's. */
EXPORTED int clock_gettime(clockid_t clock, struct timespec *t)
{
	if (!host_clock)
		host_clock = dlsym(RTLD_NEXT, "clock_gettime");
	if (clock != CLOCK_MONOTONIC)
		return host_clock(clock, t);
	*t = at(guest_ns());
	return 0;
}

/* Ends each round when its time is over and all have arrived. */
static void *conduct(void *unused)
{
	uint64_t begun, ended;

	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!on)
			pthread_cond_wait(&complete, &lock);
		begun = host_ns();
		while (on) {
			uint64_t least = running ? FLOOR_NS : FLOOR_IDLE_NS;
			struct timespec end = at(begun + (least > rounds_ns ? least : rounds_ns));

			pthread_mutex_unlock(&lock);
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
			pthread_mutex_lock(&lock);
			while (on && arrived < running)
				pthread_cond_wait(&complete, &lock);
			number++;
			arrived = 0;
			guest_now += rounds_ns;
			pthread_cond_broadcast(&turn);
			ended = host_ns();
			count.rounds++;
			count.host_us += (ended - begun) / 1000;
			begun = ended;
		}
	}
	return NULL;
}

/* Start the conductor; false if there can be none, or the plugin is not preloaded. */
bool rounds_start(void)
{
	pthread_condattr_t monotonic;
	pthread_t thread;

	if (dlsym(RTLD_DEFAULT, "clock_gettime") != (void *)clock_gettime)
		return false;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&complete, NULL);
	pthread_cond_init(&turn, &monotonic);
	return pthread_create(&thread, NULL, conduct, NULL) == 0;
}

/* Lockstep begins or ends; without it vCPUs run as fast as they can, and the clock is the host's. */
void rounds_on(bool wanted)
{
	pthread_mutex_lock(&lock);
	if (wanted && !on) {
		number++;
		arrived = 0;
		guest_now = guest_ns();
		by_rounds = true;
	} else if (!wanted && on) {
		offset = guest_now - host_ns();
		by_rounds = false;
	}
	on = wanted;
	pthread_cond_signal(&complete);
	pthread_cond_broadcast(&turn);
	pthread_mutex_unlock(&lock);
}

/* All rounds so far. */
struct round_count rounds_count(void)
{
	struct round_count so_far;

	pthread_mutex_lock(&lock);
	so_far = count;
	pthread_mutex_unlock(&lock);
	return so_far;
}

/* A vCPU has used its quantum up: it waits for the next round, and comes back here if that takes long. */
void rounds_arrive(unsigned int vcpu)
{
	struct timespec until = at(host_ns() + PATIENCE_NS);
	struct vcpu *own = vcpu_of(vcpu);
	uint64_t used;

	pthread_mutex_lock(&lock);
	if (on && arrived_in[vcpu] != number) {
		arrived_in[vcpu] = number;
		if (++arrived >= running)
			pthread_cond_signal(&complete);
	}
	while (on && arrived_in[vcpu] == number) {
		if (pthread_cond_timedwait(&turn, &lock, &until) == ETIMEDOUT && on && arrived_in[vcpu] == number) {
			pthread_mutex_unlock(&lock);
			return;
		}
	}
	/* What it did beyond its quantum is part of the next ones: a string instruction may be several at once. */
	used = on ? rounds_quantum : own->budget;
	own->base += used;
	own->budget -= used;
	pthread_mutex_unlock(&lock);
}

/* A vCPU halts, or goes on. One that goes on has a whole quantum for the rest of the round. */
void rounds_running(unsigned int vcpu, bool wanted)
{
	pthread_mutex_lock(&lock);
	if (runs[vcpu] != wanted) {
		runs[vcpu] = wanted;
		running += wanted ? 1 : -1;
		if (arrived_in[vcpu] == number)
			arrived += wanted ? 1 : -1;
		if (arrived >= running)
			pthread_cond_signal(&complete);
	}
	pthread_mutex_unlock(&lock);
}
