/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * System calls: attached only where asked for. Time inside one is divided by what the scheduler's events have
 * made of the slot between entry and exit; these events are the only writers of a slot, and of a task that is
 * on a CPU there are none while this runs.
 */
#ifndef DBDYNO_SYSCALLS_H
#define DBDYNO_SYSCALLS_H

#include "account.h"

#define NUMBERS 512
#define CLIENT_WAITS 16
#define UNSEEN (~0ULL) /* the switch to this CPU was not seen: how long it has been there is not known */

/* Set by the reader before the program is loaded. */
const volatile __u8 sized[NUMBERS]; /* by number of a system call: 1 + place of its sizes; 0: has none */
const volatile __u32 client_waits[CLIENT_WAITS]; /* labels of waits for the client; 0: no further ones */

static __always_inline __u64 switches(struct slot *s)
{
	return s->voluntary + s->involuntary;
}

/* Time on a CPU up to now, of the task that is on this one. */
static __always_inline __u64 run_up_to(struct slot *s, __u64 now)
{
	if (s->doing != RUNNING && s->doing != UNKNOWN)
		return UNSEEN;
	return s->run_ns + (now > s->since_ns ? now - s->since_ns : 0);
}

static __always_inline bool for_client(__u32 label)
{
	for (__u32 i = 0; label && i < CLIENT_WAITS; i++)
		if (client_waits[i] == label)
			return 1;
	return 0;
}

static __always_inline void add_times(struct calls *c, struct call *k, struct slot *s, __u64 now)
{
	__u64 ns = now > c->since_ns ? now - c->since_ns : 0, run = ns, runq = 0, sleep;

	if (switches(s) != c->since_switches) { /* it left its CPU */
		run = run_up_to(s, now);
		if (run == UNSEEN || c->since_run_ns == UNSEEN) {
			run = c->since_run_ns == UNSEEN ? 0 : s->run_ns - c->since_run_ns;
			k->unclear++;
		} else {
			run -= c->since_run_ns;
		}
		run = run < ns ? run : ns;
		runq = s->runq_ns - c->since_runq_ns;
		runq = runq < ns - run ? runq : ns - run;
	}
	sleep = ns - run - runq;
	k->time_ns += ns;
	k->run_ns += run;
	k->runq_ns += runq;
	if (sleep && for_client(wait_at(s, s->wait)->label))
		k->client_ns += sleep;
}

static __always_inline void add_size(struct calls *c, struct call *k, __u32 number, __u64 bytes)
{
	__u32 place = number < NUMBERS ? sized[number] : 0, size = 0;

	if (!place || place > SIZED)
		return;
	k->bytes += bytes;
	if (bytes) {
		size = 1;
#pragma clang loop unroll(full)
		for (__u32 step = 32; step; step >>= 1) {
			if (bytes >> step) {
				bytes >>= step;
				size += step;
			}
		}
	}
	c->sizes[place - 1][size < SIZES ? size : SIZES - 1]++;
}

static __always_inline struct call *call_of(struct calls *c, __u32 number)
{
	for (__u32 i = 0; i < CALLS; i++) {
		struct call *k = &c->each[(number + i) & (CALLS - 1)];

		if (!k->used) {
			k->number = number;
			k->used = 1;
		}
		if (k->number == number)
			return k;
	}
	c->lost++;
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, void *regs, long id)
{
	__u32 n = number_of((__u32)bpf_get_current_pid_tgid());
	struct calls *c = n ? bpf_map_lookup_elem(&calls, &n) : 0;
	struct slot *s = slot_at(n);
	__u64 now;

	if (!c || !s)
		return 0;
	now = bpf_ktime_get_ns();
	ordered_add(&c->seq, 1);
	c->under_way = (__u32)id + 1;
	c->since_ns = now;
	c->since_run_ns = run_up_to(s, now);
	c->since_runq_ns = s->runq_ns;
	c->since_switches = switches(s);
	ordered_add(&c->seq, 1);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, void *regs, long ret)
{
	__u32 n = number_of((__u32)bpf_get_current_pid_tgid());
	struct calls *c = n ? bpf_map_lookup_elem(&calls, &n) : 0;
	struct slot *s = slot_at(n);
	struct call *k;

	if (!c || !s || !c->under_way) /* one that began before we looked */
		return 0;
	ordered_add(&c->seq, 1);
	k = call_of(c, c->under_way - 1);
	if (k) {
		k->calls++;
		add_times(c, k, s, bpf_ktime_get_ns());
		if (ret < 0 && ret >= -4095)
			k->errors++;
		else
			add_size(c, k, k->number, ret);
	}
	c->under_way = 0;
	ordered_add(&c->seq, 1);
	return 0;
}

#endif
