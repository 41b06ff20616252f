/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where time is put: by label, and what is made good. */
#ifndef DBDYNO_ACCOUNT_H
#define DBDYNO_ACCOUNT_H

#include "throttle.h"

/* Time since the last event, which goes to one account now. */
static __always_inline __u64 elapsed(struct slot *s, __u64 now)
{
	/* clocks of two CPUs may differ by a few ns */
	__u64 ns = now > s->since_ns ? now - s->since_ns : 0;

	s->since_ns += ns;
	return ns;
}

/* Index of a label's sums. With no room left, those of UNREAD, which is put in first. */
static __always_inline __u32 wait_of(struct slot *s, __u32 label)
{
	__u32 first = (label * 0x9e3779b1U) >> 26;

	for (__u32 i = 0; i < WAITS; i++) {
		__u32 n = (first + i) & (WAITS - 1);
		struct wait *w = &s->waits[n];

		if (w->used && w->label == label)
			return n;
		if (!w->used) {
			w->label = label;
			w->used = 1;
			return n;
		}
	}
	s->lost++;
	return (UNREAD * 0x9e3779b1U) >> 26;
}

static __always_inline struct wait *wait_at(struct slot *s, __u32 n)
{
	return &s->waits[n & (WAITS - 1)];
}

/* A process that ends has given its memory back, and is in no wait of its program any more. */
static __always_inline bool memory_gone(void)
{
	return !BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), mm);
}

/* The label of the task on this CPU, or about to leave it: its memory is the one mapped. */
static __always_inline __u32 label_now(struct slot *s)
{
	__u64 at = 0;
	__u32 label = UNREAD;

	/*
	 * The pointer is read anew each time: while a backend starts and ends it leads elsewhere. Never
	 * sleeps: memory that is not there is UNREAD.
	 */
	if (s->word && !bpf_probe_read_user(&at, sizeof(at), (void *)s->word) && at &&
	    !bpf_probe_read_user(&label, sizeof(label), (void *)at))
		return label;
	return memory_gone() ? 0 : UNREAD;
}

static __always_inline void add_sleep(struct slot *s, __u64 ns)
{
	s->sleep_ns += ns;
	wait_at(s, s->wait)->sleep_ns += ns;
	if (s->blocked)
		s->blocked_ns += ns;
}

/* The sleep that its wake-up ended, put where it belongs. */
static __always_inline void end_sleep(struct slot *s)
{
	if (s->doing != WOKEN)
		return;
	add_sleep(s, elapsed(s, s->woken_ns));
	s->doing = QUEUED;
}

static __always_inline void add_queue(struct slot *s, __u64 ns)
{
	__u64 throttled = throttled_ns(s, ns);
	struct wait *w = wait_at(s, s->wait);

	s->runq_ns += ns;
	w->runq_ns += ns;
	s->throttled_ns += throttled;
	w->throttled_ns += throttled;
	s->queue = 0;
}

/*
 * Not every event is seen: a kernel may hide what happens while certain tasks are current, and a program is
 * not run where it runs already. What the kernel itself has summed up tells the missing part.
 */

/* It leaves a CPU that it was not seen to enter: a part of the time was on that CPU. */
static __always_inline __u64 mend_out(struct slot *s, struct task_struct *p, __u64 ns)
{
	__u64 run = p->se.sum_exec_runtime - s->exec_ns, queued;

	s->mended++;
	if (run > ns)
		run = ns;
	ns -= run;
	if (s->doing == QUEUED) {
		add_queue(s, ns);
	} else if (bpf_core_field_exists(p->sched_info)) {
		queued = p->sched_info.run_delay - s->delay_ns;
		if (queued > ns)
			queued = ns;
		add_sleep(s, ns - queued);
		add_queue(s, queued);
	} else {
		add_sleep(s, ns);
		s->lost++;
	}
	return run;
}

/* It gets a CPU, and was not seen to be woken. */
static __always_inline void mend_in(struct slot *s, struct task_struct *p, __u64 ns)
{
	__u64 queued;

	if (!bpf_core_field_exists(p->sched_info) || !bpf_core_field_exists(p->se.cfs_rq) ||
	    !p->sched_info.last_queued) {
		add_sleep(s, ns);
		s->lost++;
		return;
	}
	queued = p->se.cfs_rq->rq->clock - p->sched_info.last_queued;
	if (queued > ns)
		queued = ns;
	s->mended++;
	add_sleep(s, ns - queued);
	add_queue(s, queued);
}

#endif
