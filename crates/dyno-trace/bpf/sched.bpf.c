// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Where each watched task's time goes: on a CPU, in the run queue, asleep; the latter two by the label
 * (wait event word) that its program had set when it left the CPU. Labels change while a task runs, which no
 * switch tells: time on a CPU is divided among them by a clock on each CPU. So may statements, more rarely: a slice
 * on a CPU, which that clock cuts, too, belongs to the statement at its end.
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
#include "account.h"
#include "waiting.h"
#include "syscalls.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline __u32 task_state(struct task_struct *p)
{
	if (bpf_core_field_exists(p->__state))
		return p->__state;
	return (__u32)((struct task_struct___old *)p)->state;
}

/* It was off the CPU when we were told of it: under the label that was read then. */
static __always_inline void first_event(struct slot *s, __u32 doing)
{
	s->wait = wait_of(s, s->seed_label, s->seed_query);
	s->seeded = 1;
	s->blocked = doing == ASLEEP && s->seed_blocked;
	s->queue = 0;
	s->doing = doing;
}

/* A task that has ended is nobody's number any more; its sums stay until they are read. */
static __always_inline void forget(__u32 tid)
{
	__u32 block = tid / TIDS;
	struct places *p = bpf_map_lookup_elem(&places, &block);

	if (p)
		p->slot[tid % TIDS] = 0;
}

static __always_inline void switch_out(void *ctx, struct slot *s, struct task_struct *p, bool preempt, __u64 now)
{
	/*
	 * The state may have become TASK_WAKING by now, on another CPU: not 0 either. A task that is
	 * preempted on its way to sleep is runnable, whatever its state says.
	 */
	__u32 state = task_state(p);
	bool asleep = !preempt && state;
	enum since since;
	struct wait *w;
	__u64 ns;

	begin(s);
	if (!s->start_boottime_ns)
		s->start_boottime_ns = p->start_boottime;
	end_sleep(s);
	ns = elapsed(s, now);
	if (s->doing != RUNNING && s->doing != UNKNOWN)
		ns = mend_out(s, p, ns);
	s->exec_ns = p->se.sum_exec_runtime;
	if (bpf_core_field_exists(p->sched_info))
		s->delay_ns = p->sched_info.run_delay;
	since = since_sleep(p);
	note_call(s, since);
	w = add_run(s, ns, asleep ? label_asleep(s, p, state) : label_now(s), query_now(s));
	if (asleep && state & TASK_DEAD) {
		s->doing = ENDED;
		forget(p->pid);
		end(s); /* last: now the reader may give the slot to another task */
		return;
	}
	if (asleep) {
		s->doing = ASLEEP;
		s->blocked = (state & TASK_UNINTERRUPTIBLE) && !(state & TASK_NOLOAD);
		s->voluntary++;
		w->sleeps++;
		count_wait(s, w, since);
	} else {
		s->doing = QUEUED;
		s->involuntary++;
		w->preempted++;
		note_queue(s, p);
	}
	end(s);
	if (stacks && asleep)
		note_sleep(ctx, s, p, w);
}

static __always_inline void switch_in(struct slot *s, struct task_struct *p, __u64 now)
{
	__u64 ns;

	begin(s);
	if (s->doing == UNKNOWN)
		first_event(s, QUEUED);
	end_sleep(s);
	ns = elapsed(s, now);
	note_flags(s, p);
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
		/* the first cache line only: the others are where it slept, maybe on another CPU */
		s->woken_ns = now;
		s->doing = WOKEN;
		note_queue(s, p);
	}
	end(s);
	return 0;
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
	if (s)
		switch_out(ctx, s, prev, preempt, now);
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

const volatile __u32 trees; /* set by the reader before the program is loaded: whatever a watched task starts is watched */

/* A process of the server, or, where it is a tree, what any of its tasks has started: a thread, too. */
static __always_inline bool of_server(struct control *c, struct task_struct *parent, struct task_struct *child)
{
	if ((__u32)parent->tgid == c->main_tgid)
		return child->tgid != parent->tgid;
	return trees && number_of(parent->pid);
}

/* A new task of the server: watched before it runs for the first time. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 zero = 0, n = 0, tid = child->pid, block = tid / TIDS;
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	struct places *p = bpf_map_lookup_elem(&places, &block);
	struct slot *s;

	if (!c || !p || !c->main_tgid || !of_server(c, parent, child))
		return 0;
	if (bpf_map_pop_elem(&vacant, &n) || !(s = bpf_map_lookup_elem(&slots, &n))) {
		__sync_fetch_and_add(&c->lost, 1);
		return 0;
	}
	s->own = n;
	s->tgid = child->tgid;
	s->start_boottime_ns = child->start_boottime;
	s->word = c->word;
	s->first_ns = s->since_ns = bpf_ktime_get_ns();
	s->query = c->query;
	s->query_at = c->query_at;
	s->idle = c->idle;
	wait_of(s, UNREAD, 0);
	s->wait = wait_of(s, c->word ? 0 : UNREAD, 0);
	s->seeded = 1;
	s->doing = QUEUED; /* it is woken for the first time at once */
	__sync_fetch_and_add(&c->born, 1);
	ordered_add(&s->seq, 0);
	s->tid = tid; /* from now on the reader sees it, */
	ordered_add(&s->seq, 0);
	p->slot[tid % TIDS] = n; /* and the program its events */
	return 0;
}

/* A tick of this CPU's clock, with interrupts off: the task that it came upon is between two of its events. */
SEC("perf_event")
int on_tick(void *ctx)
{
	struct slot *s = slot_at(number_of((__u32)bpf_get_current_pid_tgid()));
	struct wait *w;
	__u64 query;
	__u32 label;

	if (!s)
		return 0;
	label = label_now(s);
	query = query_now(s);
	begin(s);
	if (s->doing == RUNNING)
		w = add_run(s, elapsed(s, bpf_ktime_get_ns()), label, query);
	else
		w = wait_at(s, wait_of(s, label, query));
	w->run_samples++;
	end(s);
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
