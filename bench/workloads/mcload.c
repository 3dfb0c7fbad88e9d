// SPDX-License-Identifier: GPL-2.0-only
/*
 * A load generator for memcached over a UNIX socket. The public ones want the network, which the guest has not, or
 * (memcslap) know no rate over time and only keys that they keep in memory themselves.
 *
 * mcload SOCKET fill CLIENTS KEYS BYTES
 * mcload SOCKET run CLIENTS KEYS BYTES SECONDS SETS_PERCENT [INTERVAL_MS]
 *
 * fill stores KEYS values of BYTES bytes, and prints items= and evictions= as memcached counts them, and ms=. run lets
 * each client ask for random keys, SETS_PERCENT of the requests store; it prints ops=, misses=, ms=, hmean= (requests a
 * second, harmonic mean over intervals, 500 ms each unless told), worst= (the slowest interval), p50_us=, p99_us=,
 * max_us= (of a request), and for each interval a line "tick SECONDS RATE" before it. An interval without any request
 * has no harmonic mean: then there is no hmean=.
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
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"
#include "mark.h"

#define MAX_CLIENTS	256
#define MAX_TICKS	4096
#define MAX_BYTES	(256UL << 10)
#define BATCH		(64UL << 10)
#define SUB		16U
#define NR_BUCKETS	(61 * SUB)

static struct shared {
	atomic_int ready;
	atomic_int go;
	atomic_int stop;
	struct client {
		atomic_ulong ops;
		atomic_ulong misses;
		/* Log-linear: 16 buckets for each power of two of nanoseconds. */
		uint32_t took[NR_BUCKETS];
		uint64_t longest;
	} client[MAX_CLIENTS];
} *shared;

static struct sockaddr_un server = { .sun_family = AF_UNIX };
static char value[MAX_BYTES], answer[MAX_BYTES + 4096], batch[BATCH + MAX_BYTES + 4096];

static void refuse(const char *what, const char *said)
{
	fprintf(stderr, "mcload: memcached answered a %s with: %.60s\n", what, said);
	exit(1);
}

static int reach(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof(server)))
		die(server.sun_path);
	return fd;
}

static void send_all(int fd, const char *buf, size_t len)
{
	while (len) {
		ssize_t sent = write(fd, buf, len);

		if (sent <= 0)
			die("write to memcached");
		buf += sent;
		len -= sent;
	}
}

/* Read until the answer ends with these letters. An answer to one request is all there is to read. */
static void receive(int fd, const char *last)
{
	size_t have = 0, len = strlen(last);

	for (;;) {
		ssize_t got = read(fd, answer + have, sizeof(answer) - 1 - have);

		if (got <= 0)
			die("read from memcached");
		have += got;
		answer[have] = '\0';
		if (have >= len && !memcmp(answer + have - len, last, len))
			return;
		/* Errors are one line, and end otherwise. */
		if (have >= 7 && (!strncmp(answer, "ERROR\r\n", 7) || !strncmp(answer, "SERVER_", 7) ||
				  !strncmp(answer, "CLIENT_", 7)))
			refuse("request", answer);
		if (have == sizeof(answer) - 1)
			refuse("request", "more than it was asked for");
	}
}

static size_t put_set(char *to, unsigned long key, size_t bytes, bool reply)
{
	size_t len = sprintf(to, "set k%lu 0 0 %zu%s\r\n", key, bytes, reply ? "" : " noreply");

	memcpy(to + len, value, bytes);
	memcpy(to + len + bytes, "\r\n", 2);
	return len + bytes + 2;
}

static void filler(int me, int nr, unsigned long keys, size_t bytes)
{
	unsigned long first = keys * me / nr, end = keys * (me + 1) / nr;
	int fd = reach();
	size_t len = 0;

	for (unsigned long key = first; key < end; key++) {
		len += put_set(batch + len, key, bytes, false);
		if (len >= BATCH || key + 1 == end) {
			send_all(fd, batch, len);
			len = 0;
		}
	}
	/* All of them are stored when this is answered; what went wrong with them comes here too. */
	send_all(fd, "version\r\n", 9);
	receive(fd, "\r\n");
	if (strncmp(answer, "VERSION ", 8))
		refuse("set", answer);
	_exit(0);
}

static void note(struct client *client, uint64_t ns)
{
	unsigned int bucket = ns;

	if (ns >= SUB) {
		unsigned int shift = 59 - __builtin_clzll(ns);

		bucket = (shift + 1) * SUB + (unsigned int)((ns >> shift) - SUB);
	}
	client->took[bucket]++;
	if (ns > client->longest)
		client->longest = ns;
}

static void client(int me, unsigned long keys, size_t bytes, unsigned int sets)
{
	uint64_t x = RANDOM_SEED + 7919 * (me + 1);
	struct client *mine = &shared->client[me];
	int fd = reach();

	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		sleep_until_ns(now_ns() + 1000000);
	while (!atomic_load(&shared->stop)) {
		unsigned long key;
		uint64_t start;
		size_t len;

		next_random(&x);
		key = (x >> 16) % keys;
		start = now_ns();
		if ((x & 0xffff) % 100 < sets) {
			len = put_set(batch, key, bytes, true);
			send_all(fd, batch, len);
			receive(fd, "\r\n");
			if (strcmp(answer, "STORED\r\n"))
				refuse("set", answer);
		} else {
			len = sprintf(batch, "get k%lu\r\n", key);
			send_all(fd, batch, len);
			receive(fd, "END\r\n");
			if (!strcmp(answer, "END\r\n"))
				atomic_fetch_add(&mine->misses, 1);
			else if (strncmp(answer, "VALUE ", 6))
				refuse("get", answer);
		}
		note(mine, now_ns() - start);
		atomic_fetch_add(&mine->ops, 1);
	}
	_exit(0);
}

static unsigned long stat_of(const char *name)
{
	char want[64], *found;

	snprintf(want, sizeof(want), "STAT %s ", name);
	found = strstr(answer, want);
	if (!found)
		refuse("stats", answer);
	return strtoul(found + strlen(want), NULL, 10);
}

static bool wait_all(int nr)
{
	bool bad = false;
	int status;

	for (int i = 0; i < nr; i++)
		bad |= wait(&status) < 0 || status;
	return bad;
}

static unsigned long all_ops(int nr)
{
	unsigned long ops = 0;

	for (int i = 0; i < nr; i++)
		ops += atomic_load(&shared->client[i].ops);
	return ops;
}

/* The upper edge of the bucket that holds the given part of all requests, in microseconds. */
static double percentile(int nr, unsigned long total, double part)
{
	unsigned long want = (unsigned long)(total * part), seen = 0;

	for (unsigned int b = 0; b < NR_BUCKETS; b++) {
		for (int i = 0; i < nr; i++)
			seen += shared->client[i].took[b];
		if (seen > want)
			return (b < SUB ? b + 1 : (uint64_t)(b % SUB + SUB + 1) << (b / SUB - 1)) / 1e3;
	}
	return 0;
}

static int measure(int nr, double seconds, uint64_t interval)
{
	static double rate[MAX_TICKS];
	unsigned long was = 0, ops, misses = 0, total = 0;
	double inverse = 0, worst = 0;
	uint64_t start, last, longest = 0;
	int ticks = 0, idle = 0;

	while (atomic_load(&shared->ready) < nr) {
		int status;

		if (waitpid(-1, &status, WNOHANG) > 0)
			return 1;
		sleep_until_ns(now_ns() + 5000000);
	}
	start = now_ns();
	last = start;
	MARK(MARK_BEGIN);
	atomic_store(&shared->go, 1);
	while (ticks < MAX_TICKS && (ticks + 1) * interval <= seconds * 1e9) {
		uint64_t at;

		sleep_until_ns(start + (ticks + 1) * interval);
		at = now_ns();
		ops = all_ops(nr);
		rate[ticks] = (ops - was) * 1e9 / (at - last);
		was = ops;
		last = at;
		ticks++;
	}
	MARK(MARK_END);
	atomic_store(&shared->stop, 1);
	if (wait_all(nr))
		return 1;
	for (int i = 0; i < nr; i++) {
		misses += atomic_load(&shared->client[i].misses);
		total += atomic_load(&shared->client[i].ops);
		if (shared->client[i].longest > longest)
			longest = shared->client[i].longest;
	}
	for (int i = 0; i < ticks; i++) {
		printf("tick %.2f %.1f\n", (i + 1) * interval / 1e9, rate[i]);
		if (!i || rate[i] < worst)
			worst = rate[i];
		if (rate[i] > 0)
			inverse += 1 / rate[i];
		else
			idle++;
	}
	printf("ops=%lu misses=%lu ms=%.0f worst=%.1f", was, misses, (last - start) / 1e6, worst);
	if (!idle)
		printf(" hmean=%.1f", ticks / inverse);
	if (total)
		printf(" p50_us=%.1f p99_us=%.1f max_us=%.1f", percentile(nr, total, 0.5), percentile(nr, total, 0.99),
		       longest / 1e3);
	printf("\n");
	return 0;
}

int main(int argc, char **argv)
{
	bool fill = argc == 6 && !strcmp(argv[2], "fill");
	bool run = (argc == 8 || argc == 9) && !strcmp(argv[2], "run");
	uint64_t interval = 500000000, start = now_ns();
	unsigned long keys;
	size_t bytes;
	int nr, fd;

	if (!fill && !run) {
		fprintf(stderr, "usage: mcload SOCKET fill CLIENTS KEYS BYTES\n"
			"       mcload SOCKET run CLIENTS KEYS BYTES SECONDS SETS_PERCENT [INTERVAL_MS]\n");
		return 2;
	}
	nr = atoi(argv[3]);
	keys = strtoul(argv[4], NULL, 10);
	bytes = strtoul(argv[5], NULL, 10);
	if (argc == 9)
		interval = strtoull(argv[8], NULL, 10) * 1000000;
	if (nr < 1 || nr > MAX_CLIENTS || !keys || !bytes || bytes > MAX_BYTES || !interval ||
	    (run && atof(argv[6]) * 1e9 < interval)) {
		fprintf(stderr, "mcload: up to %d clients, values of up to %lu bytes, at least one interval\n",
			MAX_CLIENTS, MAX_BYTES);
		return 2;
	}
	if (strlen(argv[1]) >= sizeof(server.sun_path)) {
		fprintf(stderr, "mcload: the socket's path is too long\n");
		return 2;
	}
	memcpy(server.sun_path, argv[1], strlen(argv[1]) + 1);
	/* No letter that could be taken for the end of an answer. */
	memset(value, 'v', sizeof(value));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	for (int i = 0; i < nr; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fill)
			filler(i, nr, keys, bytes);
		client(i, keys, bytes, (unsigned int)atoi(argv[7]));
	}
	if (run)
		return measure(nr, atof(argv[6]), interval);
	if (wait_all(nr))
		return 1;
	fd = reach();
	send_all(fd, "stats\r\n", 7);
	receive(fd, "END\r\n");
	printf("items=%lu evictions=%lu ms=%.0f\n", stat_of("curr_items"), stat_of("evictions"), (now_ns() - start) / 1e6);
	return 0;
}
