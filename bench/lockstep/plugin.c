// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lab's TCG plugin: its options, what it puts into translated code, and the marks by which a guest's program starts
 * and ends lockstep and measurements.
 *
 * LD_PRELOAD=lockstep.so qemu-system-x86_64 -plugin lockstep.so,map=System.map,out=FILE[,quantum=5000][,ns=50000]
 * [,profile=on] ... -append "nokaslr clearcpuid=tsc"
 *
 * A mark is an instruction that does nothing elsewhere, see mark.h. Each measurement becomes a line of JSON in FILE.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"
#include "mark.h"

/* What an x86 instruction has of bytes at most, and more than any width of a string instruction. */
#define INSTRUCTION_MAX	15
#define STRING_WIDTHS	16

EXPORTED int qemu_plugin_version = API_MIN;

unsigned int vcpus;
bool profile;

static struct qemu_plugin_scoreboard *score;
static unsigned int switch_to, slowpath;
static FILE *out;

/* The marks come from any vCPU. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool on, measuring;
static struct round_count begun;
/* How often lockstep was switched on: that many windows the workload has told of. */
static unsigned int number;

static const char * const argument_names[ARGUMENTS] = { [FIRST] = "rdi", [SECOND] = "rsi", [COUNT] = "rcx",
							[STACK] = "rsp" };
static struct qemu_plugin_register *handles[ARGUMENTS];
static __thread GByteArray *bytes;

struct vcpu *vcpu_of(unsigned int vcpu)
{
	return qemu_plugin_scoreboard_find(score, vcpu);
}

/* Learn the registers' handles; once a vCPU is there. */
void guest_registers(void)
{
	GArray *all = qemu_plugin_get_registers();

	for (unsigned int i = 0; i < all->len; i++) {
		const qemu_plugin_reg_descriptor *one = (qemu_plugin_reg_descriptor *)all->data + i;

		for (unsigned int j = 0; j < ARGUMENTS; j++)
			if (!strcmp(one->name, argument_names[j]))
				handles[j] = one->handle;
	}
}

static GByteArray *empty_bytes(void)
{
	if (!bytes)
		bytes = g_byte_array_new();
	return g_byte_array_set_size(bytes, 0);
}

uint64_t guest_argument(enum argument which)
{
	GByteArray *to = empty_bytes();
	uint64_t value = 0;

	if (handles[which] && qemu_plugin_read_register(handles[which], to) == sizeof(value))
		memcpy(&value, to->data, sizeof(value));
	return value;
}

bool guest_read(uint64_t address, void *to, size_t length)
{
	GByteArray *found = empty_bytes();

	if (!qemu_plugin_read_memory_vaddr(address, found, length) || found->len != length)
		return false;
	memcpy(to, found->data, length);
	return true;
}

static void begin(void)
{
	begun = rounds_count();
	measuring = true;
	threads_begin();
}

static void end(void)
{
	struct round_count now = rounds_count();

	if (!measuring)
		return;
	measuring = false;
	fprintf(out, "{\"number\":%u,\"quantum\":%u,\"ns\":%u,\"rounds\":%lu,\"host_us\":%lu,", number, rounds_quantum,
		rounds_ns, now.rounds - begun.rounds, now.host_us - begun.host_us);
	threads_write(out, profile);
	if (profile)
		waiting_write(out);
	fputs("}\n", out);
	fflush(out);
}

static void marked(unsigned int vcpu, void *which)
{
	pthread_mutex_lock(&lock);
	switch ((enum mark)(uintptr_t)which) {
	case MARK_ON:
		rounds_on(true);
		on = true;
		number++;
		begin();
		break;
	case MARK_OFF:
		end();
		on = false;
		rounds_on(false);
		break;
	case MARK_BEGIN:
		/* A program that marks its window may also run without lockstep. */
		if (on)
			begin();
		break;
	case MARK_END:
		end();
		break;
	}
	pthread_mutex_unlock(&lock);
	threads_catch_up(vcpu);
}

static void arrived(unsigned int vcpu, void *unused)
{
	(void)unused;
	threads_catch_up(vcpu);
	rounds_arrive(vcpu);
}

/* A string instruction is entered; what: the function that it is in, and its width. */
static void repeats(unsigned int vcpu, void *what)
{
	uint64_t more = string_cost(guest_argument(COUNT), (uintptr_t)what % STRING_WIDTHS);
	struct vcpu *own = vcpu_of(vcpu);

	own->budget += more;
	if (profile)
		own->symbol[(uintptr_t)what / STRING_WIDTHS] += more;
}

/* Instructions that call us: marks, and string instructions. */
static void look_into(struct qemu_plugin_tb *tb, unsigned int symbol)
{
	const uint8_t begins[] = MARK_BYTES;
	uint8_t code[INSTRUCTION_MAX];

	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		size_t length = qemu_plugin_insn_data(insn, code, sizeof(code));
		uintptr_t width = string_width(code, length);

		if (width)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, repeats, QEMU_PLUGIN_CB_R_REGS,
							       (void *)(symbol * STRING_WIDTHS + width));
		if (symbol == SYMBOL_USER && length == MARK_LENGTH && !memcmp(code, begins, sizeof(begins)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, QEMU_PLUGIN_CB_NO_REGS,
							       (void *)(uintptr_t)code[MARK_LENGTH - 1]);
	}
}

static qemu_plugin_u64 field(size_t offset)
{
	return (qemu_plugin_u64){ score, offset };
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb), n = qemu_plugin_tb_n_insns(tb);
	unsigned int symbol = symbol_at(address);

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							  field(offsetof(struct vcpu, budget)), n);
	if (profile) {
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
			tb, QEMU_PLUGIN_INLINE_ADD_U64,
			field(offsetof(struct vcpu, symbol) + symbol * sizeof(uint64_t)), n);
		if (symbol == slowpath)
			qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
									  field(offsetof(struct vcpu, waiting)), n);
		if (address == symbol_address(slowpath))
			qemu_plugin_register_vcpu_tb_exec_cb(tb, waiting_enter, QEMU_PLUGIN_CB_R_REGS, NULL);
	}
	if (address == symbol_address(switch_to))
		qemu_plugin_register_vcpu_tb_exec_cb(tb, threads_switch, QEMU_PLUGIN_CB_R_REGS, NULL);
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, arrived, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_COND_GE,
						  field(offsetof(struct vcpu, budget)), rounds_quantum, NULL);
	look_into(tb, symbol);
}

static void vcpu_begins(qemu_plugin_id_t id, unsigned int vcpu)
{
	(void)id;
	if (vcpu == 0)
		guest_registers();
	threads_init(vcpu);
	rounds_running(vcpu, true);
}

static void vcpu_halts(qemu_plugin_id_t id, unsigned int vcpu)
{
	(void)id;
	rounds_running(vcpu, false);
}

static void vcpu_goes_on(qemu_plugin_id_t id, unsigned int vcpu)
{
	(void)id;
	rounds_running(vcpu, true);
}

/* A guest that ends in the midst of a measurement ends it. */
static void over(qemu_plugin_id_t id, void *unused)
{
	(void)id;
	(void)unused;
	pthread_mutex_lock(&lock);
	end();
	pthread_mutex_unlock(&lock);
}

static int refuse(const char *why, const char *what)
{
	fprintf(stderr, "lockstep: %s%s\n", why, what);
	return 1;
}

/* One option NAME=VALUE; 0, or 1 if it is wrong. */
static int option(char *text)
{
	char *value = strchr(text, '='), *rest = "";
	unsigned long number;

	if (!value)
		return refuse("an option is NAME=VALUE, not ", text);
	*value++ = 0;
	number = strtoul(value, &rest, 10);
	if (!strcmp(text, "map"))
		return symbols_read(value) ? 0 : refuse("no System.map of a kernel: ", value);
	if (!strcmp(text, "out")) {
		out = fopen(value, "w");
		return out ? 0 : refuse("can not write to ", value);
	}
	if (!strcmp(text, "profile")) {
		profile = !strcmp(value, "on");
		return 0;
	}
	if (!strcmp(text, "quantum") && !*rest && number >= 500 && number <= 1000000) {
		rounds_quantum = number;
		return 0;
	}
	if (!strcmp(text, "ns") && !*rest && number >= 1000 && number <= 100000000) {
		rounds_ns = number;
		return 0;
	}
	return refuse("not an option, or out of range: ", text);
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	size_t size = sizeof(struct vcpu);

	if (info->version.cur < API_MIN || info->version.min > API_MIN || info->version.cur > API_MAX) {
		fprintf(stderr, "lockstep: this QEMU's plugins have API %d, and 4 to 6 are known: use QEMU 10\n",
			info->version.cur);
		return 1;
	}
	if (!info->system_emulation || strcmp(info->target_name, "x86_64"))
		return refuse("made for qemu-system-x86_64, not for ", info->target_name);
	for (int i = 0; i < argc; i++)
		if (option(argv[i]))
			return 1;
	if (!symbols_count() || !out)
		return refuse("map= and out= are needed", "");
	vcpus = info->system.smp_vcpus;
	if (info->system.max_vcpus > VCPUS_MAX)
		return refuse("too many vCPUs", "");
	switch_to = symbol_named("__switch_to");
	slowpath = symbol_named("native_queued_spin_lock_slowpath");
	if (slowpath == SYMBOL_USER)
		slowpath = symbol_named("queued_spin_lock_slowpath");
	if (switch_to == SYMBOL_USER || slowpath == SYMBOL_USER)
		return refuse("the System.map lacks __switch_to or the spinlocks' slow path", "");
	if (profile)
		size += symbols_count() * sizeof(uint64_t);
	score = qemu_plugin_scoreboard_new(size);
	if (!rounds_start())
		return refuse("no thread can be started, or the plugin is not in LD_PRELOAD, too", "");
	qemu_plugin_register_vcpu_init_cb(id, vcpu_begins);
	qemu_plugin_register_vcpu_idle_cb(id, vcpu_halts);
	qemu_plugin_register_vcpu_resume_cb(id, vcpu_goes_on);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, over, NULL);
	return 0;
}
