/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Marks: instructions by which a program in a guest tells the plugin what begins and ends. A nop with an address that
 * no compiler writes, so that they do nothing where there is no plugin.
 */
#ifndef LOCKSTEP_MARK_H
#define LOCKSTEP_MARK_H

/* nopl 0xNN504d52(%rax,%rax,1): the last byte is the mark. */
#define MARK_BYTES	{ 0x0f, 0x1f, 0x84, 0x00, 'R', 'M', 'P' }
#define MARK_LENGTH	8

enum mark {
	/* Lockstep on, and a measurement begins; the measurement ends if one runs, and lockstep is off. */
	MARK_ON = 1,
	MARK_OFF = 2,
	/* A measurement within it: what was counted before is dropped. */
	MARK_BEGIN = 3,
	MARK_END = 4,
};

#define MARK(which) \
	asm volatile(".byte 0x0f, 0x1f, 0x84, 0x00, 'R', 'M', 'P', %c0" : : "i" (which) : "memory")

#endif
