/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Time in the run queue during which a quota was used up. */
#ifndef DBDYNO_THROTTLE_H
#define DBDYNO_THROTTLE_H

#include "maps.h"

/* How long the group's queue was throttled up to now, by the kernel's own books, in nanoseconds. */
static __always_inline __u64 throttle_clock(struct cfs_rq *q)
{
	if (bpf_core_field_exists(q->throttled_clock_self_time)) {
		__u64 from = BPF_CORE_READ(q, throttled_clock_self);

		return BPF_CORE_READ(q, throttled_clock_self_time) +
		       (from ? BPF_CORE_READ(q, rq, clock) - from : 0);
	}
	struct cfs_rq___old *old = (void *)q;
	if (bpf_core_field_exists(old->throttled_clock_task_time)) {
		__u64 sum = BPF_CORE_READ(old, throttled_clock_task_time);

		if (BPF_CORE_READ(old, throttle_count))
			sum += BPF_CORE_READ(old, rq, clock_task) - BPF_CORE_READ(old, throttled_clock_task);
		return sum;
	}
	struct cfs_rq___scaled *scaled = (void *)q;
	if (bpf_core_field_exists(scaled->throttled_clock_pelt_time)) {
		__u64 sum = BPF_CORE_READ(scaled, throttled_clock_pelt_time);

		if (BPF_CORE_READ(scaled, throttle_count))
			sum += BPF_CORE_READ(scaled, rq, clock_pelt) - BPF_CORE_READ(scaled, rq, lost_idle_time) -
			       BPF_CORE_READ(scaled, throttled_clock_pelt);
		return sum;
	}
	return 0;
}

static __always_inline bool throttle_known(void)
{
	return bpf_core_field_exists(((struct cfs_rq *)0)->throttled_clock_self_time) ||
	       bpf_core_field_exists(((struct cfs_rq___old *)0)->throttled_clock_task_time) ||
	       bpf_core_field_exists(((struct cfs_rq___scaled *)0)->throttled_clock_pelt_time);
}

/*
 * Since 6.18 a task is throttled by itself, on its way to user mode, and says so as it leaves the CPU;
 * before, all that wait in a throttled group's queue are, whenever they came there.
 */
static __always_inline void note_queue(struct slot *s, struct task_struct *p)
{
	s->queue = 0;
	if (!bpf_core_field_exists(p->se.cfs_rq))
		return;
	if (bpf_core_field_exists(p->throttled) && !p->throttled)
		return;
	s->queue = (__u64)p->se.cfs_rq;
	s->queue_clock_ns = throttle_clock(p->se.cfs_rq);
}

/* Of the time in the queue that ends now, how much was throttled. */
static __always_inline __u64 throttled_ns(struct slot *s, __u64 queued_ns)
{
	if (!s->queue)
		return 0;
	__s64 ns = throttle_clock((struct cfs_rq *)s->queue) - s->queue_clock_ns;
	if (ns < 0)
		return 0;
	return (__u64)ns < queued_ns ? (__u64)ns : queued_ns;
}

#endif
