/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which sleeps are one wait, and what is no wait of the program at all. */
#ifndef DBDYNO_WAITING_H
#define DBDYNO_WAITING_H

#include "account.h"

/* Where a task that leaves a CPU was since it left one before: in user mode, or inside one system call. */
enum since {
	UNCLEAR,
	RETURNED,
	INSIDE,
};

/*
 * Some flags of a task are set whenever it leaves a CPU and cleared on its way to user mode: that its restartable
 * sequence has to be looked after, and that its floating-point registers have to be loaded. Which ones depends on the
 * processor, the kernel's version and the program, so they are learned: no task lacked them when it got a CPU, and some
 * lacked them when they left one. A task that has all of them still was not in user mode meanwhile.
 */
static __always_inline void note_flags(struct slot *s, struct task_struct *p)
{
	__u32 zero = 0, missing;
	struct control *c = bpf_map_lookup_elem(&control, &zero);

	/* first it may get one after its birth: it has left none yet */
	if (!c || s->seeded || !bpf_core_field_exists(p->thread_info))
		return;
	missing = ~(__u32)p->thread_info.flags;
	if (missing & ~c->missing)
		c->missing |= missing; /* not atomic (5.12): what another CPU overwrites is met again */
}

static __always_inline enum since since_sleep(struct task_struct *p)
{
	__u32 zero = 0, flags, those;
	struct control *c = bpf_map_lookup_elem(&control, &zero);

	if (!c || !bpf_core_field_exists(p->thread_info))
		return UNCLEAR;
	flags = p->thread_info.flags;
	if (~flags & ~c->cleared)
		c->cleared |= ~flags;
	those = c->cleared & ~c->missing;
	if (!c->missing || !those)
		return UNCLEAR;
	return (flags & those) == those ? INSIDE : RETURNED;
}

/* It leaves a CPU: a system call that it has returned from is over. */
static __always_inline void note_call(struct slot *s, enum since since)
{
	if (since != INSIDE)
		s->in_call = 0;
}

/* A sleep begins, which may go on with the wait before. */
static __always_inline void count_wait(struct slot *s, struct wait *w, enum since since)
{
	if (s->in_call == s->wait + 1)
		return;
	s->in_call = s->wait + 1;
	w->begun++;
	if (since == UNCLEAR)
		w->unclear++;
}

/* The label of a task that begins to sleep; a sleep that it was made to is none of its program. */
static __always_inline __u32 label_asleep(struct slot *s, struct task_struct *task, __u32 state)
{
	if (state & TASK_STOPPED)
		return STOPPED;
	if (state & TASK_FROZEN || (bpf_core_field_exists(task->frozen) && BPF_CORE_READ_BITFIELD(task, frozen)))
		return FROZEN;
	return label_now(s);
}

#endif
