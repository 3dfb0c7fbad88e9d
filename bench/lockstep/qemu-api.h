/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the plugin uses of QEMU's interface for TCG plugins, declared by us: Debian ships no header for it.
 *
 * Versions 4 to 6 of the interface have these functions as they are here; QEMU 10.0 has 4. Version 7 changed the
 * arguments of the callbacks.
 */
#ifndef LOCKSTEP_QEMU_API_H
#define LOCKSTEP_QEMU_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API_MIN	4
#define API_MAX	6

#define EXPORTED __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;

typedef struct qemu_info_t {
	const char *target_name;
	struct {
		int min;
		int cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus;
		int max_vcpus;
	} system;
} qemu_info_t;

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
struct qemu_plugin_register;

typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_CB_R_REGS };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
/* The last of eight, after NEVER, ALWAYS, EQ, NE, LT, LE and GT. */
enum qemu_plugin_cond { QEMU_PLUGIN_COND_GE = 7 };

typedef void (*qemu_plugin_udata_cb_t)(qemu_plugin_id_t id, void *data);
typedef void (*qemu_plugin_vcpu_simple_cb_t)(qemu_plugin_id_t id, unsigned int vcpu);
typedef void (*qemu_plugin_vcpu_udata_cb_t)(unsigned int vcpu, void *data);
typedef void (*qemu_plugin_vcpu_tb_trans_cb_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);

/* GLib's arrays, as far as they are public. */
typedef struct {
	char *data;
	unsigned int len;
} GArray;
typedef struct {
	uint8_t *data;
	unsigned int len;
} GByteArray;

typedef struct {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
} qemu_plugin_reg_descriptor;

GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *array, unsigned int length);

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_simple_cb_t cb);
void qemu_plugin_register_vcpu_idle_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_simple_cb_t cb);
void qemu_plugin_register_vcpu_resume_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_simple_cb_t cb);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_tb_trans_cb_t cb);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, qemu_plugin_udata_cb_t cb, void *data);

void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, qemu_plugin_vcpu_udata_cb_t cb,
					  enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb, qemu_plugin_vcpu_udata_cb_t cb,
					       enum qemu_plugin_cb_flags flags, enum qemu_plugin_cond cond,
					       qemu_plugin_u64 entry, uint64_t imm, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, enum qemu_plugin_op op,
						       qemu_plugin_u64 entry, uint64_t imm);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_udata_cb_t cb,
					    enum qemu_plugin_cb_flags flags, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t length);

struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score, unsigned int vcpu);

GArray *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *to);
bool qemu_plugin_read_memory_vaddr(uint64_t address, GByteArray *to, size_t length);

#endif
