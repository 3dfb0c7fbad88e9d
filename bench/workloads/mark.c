// SPDX-License-Identifier: GPL-2.0-only
/*
 * Switches the lab's lockstep, for scripts. A measurement lasts from on to off.
 *
 * mark on|off
 */
#include <stdio.h>
#include <string.h>

#include "mark.h"

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "on")) {
		MARK(MARK_ON);
	} else if (argc == 2 && !strcmp(argv[1], "off")) {
		MARK(MARK_OFF);
	} else {
		fprintf(stderr, "usage: mark on|off\n");
		return 2;
	}
	return 0;
}
