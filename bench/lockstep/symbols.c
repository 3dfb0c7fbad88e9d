// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's functions by address, from its System.map; the guest is booted with nokaslr. */
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"

struct symbol {
	uint64_t address;
	char *name;
};

/* Sorted by address; the first two stand for user space, and for kernel code that the map does not have. */
static struct symbol *symbols;
static unsigned int count;
static uint64_t init_task;

static int by_address(const void *a, const void *b)
{
	const struct symbol *one = a, *other = b;

	return one->address < other->address ? -1 : one->address > other->address;
}

/* Read a System.map; false if there is none, or nothing in it. */
bool symbols_read(const char *path)
{
	FILE *map = fopen(path, "r");
	char line[512], name[400], type;
	unsigned long long address;
	unsigned int room = 1 << 17;

	if (!map)
		return false;
	symbols = calloc(room, sizeof(*symbols));
	symbols[SYMBOL_USER] = (struct symbol){ 0, "user" };
	symbols[SYMBOL_OTHER] = (struct symbol){ 1ULL << 63, "other" };
	count = 2;
	while (fgets(line, sizeof(line), map)) {
		if (sscanf(line, "%llx %c %399s", &address, &type, name) != 3)
			continue;
		if (!strcmp(name, "init_task"))
			init_task = address;
		if (strchr("tTwW", type) && address >> 63 && count < room)
			symbols[count++] = (struct symbol){ address, strdup(name) };
	}
	fclose(map);
	qsort(symbols + 2, count - 2, sizeof(*symbols), by_address);
	return count > 2 && init_task;
}

unsigned int symbols_count(void)
{
	return count;
}

/* The function that an address is in; of aliases always the same one. */
unsigned int symbol_at(uint64_t address)
{
	unsigned int low = 0, high = count;

	if (!(address >> 63))
		return SYMBOL_USER;
	while (high - low > 1) {
		unsigned int middle = (low + high) / 2;

		if (symbols[middle].address <= address)
			low = middle;
		else
			high = middle;
	}
	while (low > SYMBOL_OTHER + 1 && symbols[low - 1].address == symbols[low].address)
		low--;
	return low;
}

uint64_t symbol_address(unsigned int symbol)
{
	return symbols[symbol].address;
}

const char *symbol_name(unsigned int symbol)
{
	return symbols[symbol].name;
}

/* The number of a function; SYMBOL_USER if there is none of that name. */
unsigned int symbol_named(const char *name)
{
	for (unsigned int i = SYMBOL_OTHER + 1; i < count; i++)
		if (!strcmp(symbols[i].name, name))
			return symbol_at(symbols[i].address);
	return SYMBOL_USER;
}

/* The address of the first task. */
uint64_t symbol_init_task(void)
{
	return init_task;
}
