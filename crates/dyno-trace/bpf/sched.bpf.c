// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Where each watched task's time goes: on a CPU, in the run queue, asleep; the latter two by the label
 * (wait event word) that its program had set when it left the CPU.
 *
 * Why plain additions suffice: a task's own events never run at the same time. sched_switch is traced
 * under the lock of the run queue that the task leaves or enters. A wake-up of a task that has left is
 * traced under the lock of the queue it is put on, and only after the switch away from it is complete
 * (try_to_wake_up waits for on_cpu); one of a task that is still on a queue, under that queue's lock; and
 * the wake-up of a task that is about to sleep but runs, on its own CPU with interrupts off. The reader
 * is no writer: it sees by `seq` that it came between.
 *
 * Tracepoints are all we build on: they are there without kprobes and without function tracing.
 */
#include "kernel.h"
#include "shared.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

/* Direct, by tid: as many blocks as there can be tids. A task not watched costs one look here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct places);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct calls);
} calls SEC(".maps");

/* Slots that are free. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 2);
	__type(value, __u32);
} vacant SEC(".maps");

static __always_inline __u32 number_of(__u32 tid)
{
	__u32 block = tid / TIDS;
	struct places *p = bpf_map_lookup_elem(&places, &block);

	return p ? p->slot[tid % TIDS] : 0;
}

static __always_inline struct slot *slot_at(__u32 number)
{
	return number ? bpf_map_lookup_elem(&slots, &number) : 0;
}

/* The reader takes what it copied between two equal even values of `seq`. */
static __always_inline void begin(struct slot *s)
{
	*(volatile __u32 *)&s->seq = s->seq + 1;
	barrier();
}

static __always_inline void end(struct slot *s)
{
	barrier();
	*(volatile __u32 *)&s->seq = s->seq + 1;
}

static __always_inline __u32 task_state(struct task_struct *p)
{
	if (bpf_core_field_exists(p->__state))
		return p->__state;
	return (__u32)((struct task_struct___old *)p)->state;
}

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

/* The label of the task that is leaving this CPU: its memory is still the one mapped. */
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
	return UNREAD;
}

static __always_inline void add_sleep(struct slot *s, __u64 ns)
{
	s->sleep_ns += ns;
	wait_at(s, s->wait)->sleep_ns += ns;
	if (s->blocked)
		s->blocked_ns += ns;
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

/* It was off the CPU when we were told of it: under the label that was read then. */
static __always_inline void first_event(struct slot *s, __u32 doing)
{
	s->wait = wait_of(s, s->seed_label);
	s->blocked = doing == ASLEEP && s->seed_blocked;
	s->queue = 0;
	s->doing = doing;
}

static __always_inline void switch_out(struct slot *s, struct task_struct *p, bool preempt, __u64 now)
{
	/*
	 * The state may have become TASK_WAKING by now, on another CPU: not 0 either. A task that is
	 * preempted on its way to sleep is runnable, whatever its state says.
	 */
	__u32 state = task_state(p);
	bool asleep = !preempt && state;
	struct wait *w;
	__u64 ns;

	begin(s);
	if (!s->start_boottime_ns)
		s->start_boottime_ns = p->start_boottime;
	ns = elapsed(s, now);
	if (s->doing == QUEUED || s->doing == ASLEEP)
		ns = mend_out(s, p, ns);
	s->run_ns += ns;
	s->exec_ns = p->se.sum_exec_runtime;
	if (bpf_core_field_exists(p->sched_info))
		s->delay_ns = p->sched_info.run_delay;
	if (asleep && state & TASK_DEAD) {
		s->doing = ENDED;
		end(s);
		return;
	}
	s->wait = wait_of(s, label_now(s));
	w = wait_at(s, s->wait);
	if (asleep) {
		s->doing = ASLEEP;
		s->blocked = (state & TASK_UNINTERRUPTIBLE) && !(state & TASK_NOLOAD);
		s->voluntary++;
		w->sleeps++;
	} else {
		s->doing = QUEUED;
		s->involuntary++;
		w->preempted++;
		note_queue(s, p);
	}
	end(s);
}

static __always_inline void switch_in(struct slot *s, struct task_struct *p, __u64 now)
{
	__u64 ns;

	begin(s);
	if (s->doing == UNKNOWN)
		first_event(s, QUEUED);
	ns = elapsed(s, now);
	if (s->doing == QUEUED) {
		add_queue(s, ns);
	} else if (s->doing == ASLEEP) {
		mend_in(s, p, ns);
	} else {
		s->run_ns += ns;
		s->lost++;
	}
	s->doing = RUNNING;
	end(s);
}

static __always_inline int wake_up(struct task_struct *p)
{
	struct slot *s = slot_at(number_of(p->pid));
	__u64 now;

	/* also called for tasks that were only about to sleep */
	if (!s || (s->doing != ASLEEP && s->doing != UNKNOWN))
		return 0;
	now = bpf_ktime_get_ns();
	begin(s);
	if (s->doing == UNKNOWN && !(bpf_core_field_exists(p->on_cpu) && p->on_cpu))
		first_event(s, ASLEEP);
	if (s->doing == ASLEEP) {
		add_sleep(s, elapsed(s, now));
		s->doing = QUEUED;
		note_queue(s, p);
	}
	end(s);
	return 0;
}

/* A task that has ended is nobody's number any more; its sums stay until they are read. */
static __always_inline void forget(__u32 tid)
{
	__u32 block = tid / TIDS;
	struct places *p = bpf_map_lookup_elem(&places, &block);

	if (p)
		p->slot[tid % TIDS] = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 out = number_of(prev->pid), in = number_of(next->pid);
	struct slot *s;
	__u64 now;

	if (!(out | in))
		return 0;
	now = bpf_ktime_get_ns();
	s = slot_at(out);
	if (s) {
		switch_out(s, prev, preempt, now);
		if (s->doing == ENDED)
			forget(prev->pid);
	}
	s = slot_at(in);
	if (s)
		switch_in(s, next, now);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *p)
{
	return wake_up(p);
}

/* A new process of the server: watched before it runs for the first time. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 zero = 0, n = 0, tid = child->pid, block = tid / TIDS;
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	struct places *p = bpf_map_lookup_elem(&places, &block);
	struct slot *s;

	if (!c || !p || !c->main_tgid || (__u32)parent->tgid != c->main_tgid || child->tgid == parent->tgid)
		return 0;
	if (bpf_map_pop_elem(&vacant, &n) || !(s = bpf_map_lookup_elem(&slots, &n))) {
		__sync_fetch_and_add(&c->lost, 1);
		return 0;
	}
	s->tgid = child->tgid;
	s->start_boottime_ns = child->start_boottime;
	s->word = c->word;
	s->first_ns = s->since_ns = bpf_ktime_get_ns();
	wait_of(s, UNREAD);
	s->wait = wait_of(s, c->word ? 0 : UNREAD);
	s->doing = QUEUED; /* it is woken for the first time at once */
	barrier();
	s->tid = tid; /* last: from now on the reader sees it */
	p->slot[tid % TIDS] = n;
	return 0;
}

/*
 * Not attached: the reader runs it (BPF_PROG_TEST_RUN) with the number of a slot that is in a queue, to know
 * how much of that wait was throttled up to now.
 */
SEC("raw_tp/look_throttled")
int look_throttled(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0;
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	struct slot *s = slot_at((__u32)ctx->args[0]);

	if (!c)
		return 0;
	c->throttle_known = throttle_known();
	if (s)
		c->throttled_now_ns = throttled_ns(s, ~0ULL);
	return 0;
}

/* -- system calls: attached only where asked for -------------------------------------------------- */

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
