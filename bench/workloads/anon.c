// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes with more anonymous memory than there is: swapping, with a working set that is worth keeping.
 *
 * anon PROCS KIB SECONDS [PID]
 *
 * PROCS processes fill KIB in all (an eighth of each page does not compress), then touch pages at random for SECONDS,
 * three times of four in the first quarter of their memory. Each touch checks the page's content. PID gets a SIGTERM
 * while the memory is still held. Prints one line: fill_ms=, touches=, ms=, max_us= (the longest touch).
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"

#define PAGE		4096UL
#define NOISE		(PAGE / 8)
#define MAX_PROCS	64

static struct shared {
	atomic_int filled;
	atomic_int go;
	atomic_int stop;
	atomic_int done;
	atomic_ulong touches[MAX_PROCS];
	atomic_ulong max_ns[MAX_PROCS];
} *shared;

/* Its number and noise; what is left stays zero. */
static void fill(uint64_t *page, uint64_t number, uint64_t *x)
{
	page[0] = number;
	for (size_t i = 1; i < NOISE / sizeof(*page); i++)
		page[i] = next_random(x);
}

static void worker(int me, size_t nr_pages)
{
	uint64_t x = RANDOM_SEED + me;
	char *map = mmap(NULL, nr_pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t longest = 0;

	/* A parent that dies must not leave us here with all the memory. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (map == MAP_FAILED)
		die("mmap");
	madvise(map, nr_pages * PAGE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < nr_pages; i++)
		fill((uint64_t *)(map + i * PAGE), i, &x);
	atomic_fetch_add(&shared->filled, 1);
	while (!atomic_load(&shared->go))
		nap(0.005);
	while (!atomic_load(&shared->stop)) {
		uint64_t r = next_random(&x), start, took;
		size_t i = (r >> 8) % (r & 3 ? nr_pages / 4 + 1 : nr_pages);
		volatile uint64_t *page = (uint64_t *)(map + i * PAGE);

		start = now_ns();
		if (page[0] != i) {
			fprintf(stderr, "anon: page %zu came back with other content\n", i);
			_exit(1);
		}
		page[1] = r;
		took = now_ns() - start;
		if (took > longest)
			longest = took;
		atomic_fetch_add(&shared->touches[me], 1);
	}
	atomic_store(&shared->max_ns[me], longest);
	atomic_fetch_add(&shared->done, 1);
	/* Hold the memory until the parent has told its watcher. */
	while (atomic_load(&shared->go))
		nap(0.005);
	_exit(0);
}

/* Wait until all processes have passed a stage, or one has died. */
static void wait_for(atomic_int *stage, int nr)
{
	int status;

	while (atomic_load(stage) < nr) {
		if (waitpid(-1, &status, WNOHANG) > 0) {
			fprintf(stderr, "anon: a process has died; was it killed for memory?\n");
			exit(1);
		}
		nap(0.01);
	}
}

int main(int argc, char **argv)
{
	int nr = argc > 3 ? atoi(argv[1]) : 0;
	size_t kib = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
	double seconds = argc > 3 ? atof(argv[3]) : 0, fill_ms, ms;
	unsigned long touches = 0, longest = 0;
	uint64_t start;
	bool bad = false;
	int status;

	if (argc > 5 || nr < 1 || nr > MAX_PROCS || kib / nr < 64 || seconds <= 0) {
		fprintf(stderr, "usage: anon PROCS KIB SECONDS [PID]\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	start = now_ns();
	for (int i = 0; i < nr; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid)
			worker(i, kib * 1024 / PAGE / nr);
	}
	watch_undisturbed();
	wait_for(&shared->filled, nr);
	fill_ms = (now_ns() - start) / 1e6;
	start = now_ns();
	atomic_store(&shared->go, 1);
	nap(seconds);
	for (int i = 0; i < nr; i++)
		touches += atomic_load(&shared->touches[i]);
	ms = (now_ns() - start) / 1e6;
	if (argc == 5 && kill(atoi(argv[4]), SIGTERM))
		die("the watcher");
	atomic_store(&shared->stop, 1);
	wait_for(&shared->done, nr);
	atomic_store(&shared->go, 0);
	for (int i = 0; i < nr; i++) {
		bad |= wait(&status) < 0 || status;
		if (atomic_load(&shared->max_ns[i]) > longest)
			longest = atomic_load(&shared->max_ns[i]);
	}
	printf("fill_ms=%.0f touches=%lu ms=%.0f max_us=%.1f\n", fill_ms, touches, ms, longest / 1e3);
	return bad;
}
