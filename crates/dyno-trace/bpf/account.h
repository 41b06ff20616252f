/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where time is put: by label, and what is made good. */
#ifndef DBDYNO_ACCOUNT_H
#define DBDYNO_ACCOUNT_H

#include "stacks.h"
#include "throttle.h"

#define PROBES 32 /* so far from its own place something is looked for */

/* Time since the last event, which goes to one account now. */
static __always_inline __u64 elapsed(struct slot *s, __u64 now)
{
	/* clocks of two CPUs may differ by a few ns */
	__u64 ns = now > s->since_ns ? now - s->since_ns : 0;

	s->since_ns += ns;
	return ns;
}

/* Index of the sums of a label in a statement; WAITS: no room among the first `most` that are taken. */
static __always_inline __u32 place_of(struct slot *s, __u32 label, __u64 query, __u32 most)
{
	__u32 first = ((label ^ (__u32)query ^ (__u32)(query >> 32)) * 0x9e3779b1U) >> 25;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < PROBES; i++) {
		__u32 n = (first + i) & (WAITS - 1);
		struct wait *w = &s->waits[n];

		if (w->used && w->label == label && w->query == query)
			return n;
		if (!w->used) {
			if (s->taken >= most)
				return WAITS;
			s->taken++;
			w->label = label;
			w->query = query;
			w->used = 1;
			return n;
		}
	}
	return WAITS;
}

/*
 * Functions that are not static are verified once, by themselves, instead of at each place that calls them on each way
 * to it. Before 5.12 such a function takes numbers only, so it looks its slot up.
 */

/*
 * With no room left for one more statement, those of all others; for one more label, those of UNREAD, which
 * is put in first.
 */
__noinline __u32 find_wait(__u32 own, __u32 label, __u64 query)
{
	struct slot *s = slot_at(own);
	__u32 n;

	if (!s)
		return 0;
	n = place_of(s, label, query, query ? WAITS / 4 * 3 : WAITS);
	if (n == WAITS && query)
		n = place_of(s, label, OTHERS, WAITS);
	if (n < WAITS)
		return n;
	s->lost++;
	return (UNREAD * 0x9e3779b1U) >> 25;
}

static __always_inline __u32 wait_of(struct slot *s, __u32 label, __u64 query)
{
	return find_wait(s->own, label, query);
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

/* The statement that it works for, or did last: as its entry of the activity view has it. */
static __always_inline __u64 query_now(struct slot *s)
{
	__u64 at = 0, query = 0;

	if (!s->query || bpf_probe_read_user(&at, sizeof(at), (void *)s->query) || !at ||
	    bpf_probe_read_user(&query, sizeof(query), (void *)(at + s->query_at)))
		return 0;
	return query;
}

static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 octave = 0, bucket;
	__u64 v = ns >> 10;

	if (!v)
		return 0;
	if (v >> 32)
		return BUCKETS - 1;
#pragma clang loop unroll(full)
	for (__u32 step = 16; step; step >>= 1) {
		if (v >> step) {
			v >>= step;
			octave += step;
		}
	}
	bucket = octave * 4 + ((ns >> (octave + 8)) & 3) + 1;
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* One more wait of wait `n` lasted so long; `queue` 0: asleep, 1: in the run queue. */
__noinline int add_duration(__u32 own, __u32 n, __u32 queue, __u64 ns)
{
	__u16 cell = 1 + ((n & (WAITS - 1)) << 8 | (queue & 1) << 7 | bucket_of(ns));
	__u32 first = (cell * 0x9e3779b1U) >> 22;
	struct slot *s = slot_at(own);

	if (!s)
		return 0;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < PROBES; i++) {
		__u32 at = (first + i) & (CELLS - 1);

		if (!s->cells[at])
			s->cells[at] = cell;
		if (s->cells[at] == cell) {
			s->counts[at]++;
			return 0;
		}
	}
	s->unplaced++;
	return 0;
}

static __always_inline void add_sleep(struct slot *s, __u64 ns)
{
	s->sleep_ns += ns;
	wait_at(s, s->wait)->sleep_ns += ns;
	if (s->blocked)
		s->blocked_ns += ns;
	if (!s->seeded)
		add_duration(s->own, s->wait, 0, ns);
	if (stacks) {
		learn(wait_at(s, s->wait), ns);
		if (s->sampled_ns)
			note_end(s->own, ns);
	}
}

/* The sleep that its wake-up ended, put where it belongs. */
static __always_inline void end_sleep(struct slot *s)
{
	if (s->doing != WOKEN)
		return;
	add_sleep(s, elapsed(s, s->woken_ns));
	s->doing = QUEUED;
}

static __always_inline void queue_under(struct slot *s, __u32 n, __u64 ns, __u64 throttled)
{
	struct wait *w = wait_at(s, n);

	w->runq_ns += ns;
	w->throttled_ns += throttled;
	if (!s->seeded)
		add_duration(s->own, n, 1, ns);
	s->seeded = 0;
}

__noinline int queue_of(__u32 own, __u64 ns)
{
	struct slot *s = slot_at(own);
	__u64 throttled;

	if (!s)
		return 0;
	throttled = throttled_ns(s, ns);
	s->runq_ns += ns;
	s->throttled_ns += throttled;
	s->queue = 0;
	if (s->query && wait_at(s, s->wait)->label == s->idle) {
		s->owed_ns = ns;
		s->owed_throttled_ns = throttled;
		s->owes = 1;
	} else {
		queue_under(s, s->wait, ns, throttled);
	}
	return 0;
}

static __always_inline void add_queue(struct slot *s, __u64 ns)
{
	queue_of(s->own, ns);
}

/* What is owed, to the statement that it worked for after it. */
static __always_inline void settle(struct slot *s, __u64 query)
{
	if (!s->owes)
		return;
	s->owes = 0;
	queue_under(s, wait_of(s, s->idle, query), s->owed_ns, s->owed_throttled_ns);
	s->owed_ns = 0;
	s->owed_throttled_ns = 0;
}

/* A slice on a CPU, and under what it was found at the end: that is the wait from now on. */
static __always_inline struct wait *add_run(struct slot *s, __u64 ns, __u32 label, __u64 query)
{
	struct wait *before = wait_at(s, s->wait), *w;

	settle(s, query);
	s->run_ns += ns;
	s->wait = wait_of(s, label, query);
	w = wait_at(s, s->wait);
	w->run_ns += ns;
	if (before->used && before->query != w->query && before->label != s->idle) {
		before->left_ns += ns;
		w->came_ns += ns;
	}
	return w;
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
