/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* System calls: attached only where asked for. */
#ifndef DBDYNO_SYSCALLS_H
#define DBDYNO_SYSCALLS_H

#include "maps.h"

static __always_inline struct calls *calls_of_current(void)
{
	__u32 n = number_of((__u32)bpf_get_current_pid_tgid());

	return n ? bpf_map_lookup_elem(&calls, &n) : 0;
}

static __always_inline void add_call(struct calls *c, __u32 number, __u64 ns)
{
	for (__u32 i = 0; i < CALLS; i++) {
		struct call *k = &c->each[(number + i) & (CALLS - 1)];

		if (!k->used) {
			k->number = number;
			k->used = 1;
		}
		if (k->number == number) {
			k->calls++;
			k->time_ns += ns;
			return;
		}
	}
	c->lost++;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, void *regs, long id)
{
	struct calls *c = calls_of_current();

	if (!c)
		return 0;
	*(volatile __u32 *)&c->seq = c->seq + 1;
	barrier();
	c->under_way = (__u32)id + 1;
	c->since_ns = bpf_ktime_get_ns();
	barrier();
	*(volatile __u32 *)&c->seq = c->seq + 1;
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, void *regs, long ret)
{
	struct calls *c = calls_of_current();

	if (!c || !c->under_way) /* one that began before we looked */
		return 0;
	*(volatile __u32 *)&c->seq = c->seq + 1;
	barrier();
	add_call(c, c->under_way - 1, bpf_ktime_get_ns() - c->since_ns);
	c->under_way = 0;
	barrier();
	*(volatile __u32 *)&c->seq = c->seq + 1;
	return 0;
}

#endif
