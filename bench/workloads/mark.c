// SPDX-License-Identifier: GPL-2.0-only
/*
 * Switches the lab's lockstep, for scripts. A measurement lasts from on to off.
 *
 * Reads lines, "on" or "off", and answers each with an empty line. It is started once, before memory is full, and stays
 * in memory: a process that is started in a full memory first has to be read from the host, at the speed of lockstep.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "lab.h"
#include "mark.h"

int main(void)
{
	char line[8];

	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		die("mlockall");
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "on\n")) {
			MARK(MARK_ON);
		} else if (!strcmp(line, "off\n")) {
			MARK(MARK_OFF);
		} else {
			fprintf(stderr, "mark: on or off, not %s\n", line);
			return 2;
		}
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
