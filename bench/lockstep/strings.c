// SPDX-License-Identifier: GPL-2.0-only
/*
 * What string instructions cost that copy or fill with one instruction: rep movs and rep stos.
 *
 * QEMU 10 loops inside the block for them, so that the block's length tells nothing of the work: a page copied would
 * be one instruction. Instructions are lockstep's only unit of time, so a number is needed: STRING_BYTES are assumed to
 * take as long as one instruction. The fast strings of today's CPUs move so much in a cycle when all is in their cache;
 * 4 KiB are 128. What comes from memory takes longer, but that is not counted of any other instruction either.
 *
 * cmps and scas with a prefix end when something is found, which is not known beforehand, and no hot path of the
 * kernel has them: they stay one instruction.
 */
#include "lockstep.h"

#define STRING_BYTES	32

static bool is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26: case 0x2e: case 0x36: case 0x3e:	/* segments */
	case 0x64: case 0x65:
	case 0x66: case 0x67:				/* operand's and address's size */
	case 0xf2: case 0xf3:
		return true;
	}
	return false;
}

/* How many bytes each turn of a repeated movs or stos moves; 0 if the instruction is another one. */
unsigned int string_width(const uint8_t *code, size_t length)
{
	bool repeats = false, small = false, wide = false;
	size_t i;

	for (i = 0; i < length && is_prefix(code[i]); i++) {
		repeats |= code[i] >= 0xf2;
		small |= code[i] == 0x66;
	}
	/* REX comes last. */
	if (i < length && (code[i] & 0xf0) == 0x40)
		wide = code[i++] & 8;
	if (!repeats || i + 1 != length)
		return 0;
	switch (code[i]) {
	case 0xa4: case 0xaa:
		return 1;
	case 0xa5: case 0xab:
		return wide ? 8 : small ? 2 : 4;
	}
	return 0;
}

/*
 * Instructions that one entry of a repeated instruction is worth beyond itself, rcx being count. QEMU leaves the loop
 * where the low 16 bits of rcx are 0, and enters the instruction again: this is the cost up to there, so that nothing
 * is counted twice. But for a turn that faults: what was left then is counted again.
 */
uint64_t string_cost(uint64_t count, unsigned int width)
{
	return count ? (((count - 1) & 0xffff) + 1) * width / STRING_BYTES : 0;
}
