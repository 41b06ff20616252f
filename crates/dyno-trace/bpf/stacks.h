/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Stacks of sleeps, only where asked for: otherwise none of this is left in the program when it is loaded.
 *
 * A sleep is chosen when it begins, at random, with a chance that is known: so each that was chosen stands for
 * 1 / chance of its kind, whatever the chance was, and sums over them have the right mean. The chance is in
 * proportion to the root mean square of how long the task slept under that label before, which makes the
 * scatter of sums of time smallest for so many stacks; and at least 1 / (number of such sleeps). While the reader gets
 * no CPU the ring fills up, and chances become smaller with it: those that are taken stand for more, and few are lost.
 */
#ifndef DBDYNO_STACKS_H
#define DBDYNO_STACKS_H

#include "maps.h"

#define USER_STACK (1ULL << 8)
#define NO_WAKEUP 1
#define LONGEST (1U << 24) /* of 2^10 ns: squares of longer ones would not find room in a sum */
#define SELDOM 6 /* waits for the client are most of the time, and their stacks are one: by 2^-3 */

#define PARTS 16 /* of the ring: with each one that is filled the chance is halved; the last is for ends of sleeps */
#define AVAILABLE 0 /* of bpf_ringbuf_query: bytes not read yet */

const volatile __u32 stacks; /* set by the reader before the program is loaded, */
const volatile __u32 ring_bytes = 4096; /* and this */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

/* A sleep under this label has ended. */
static __always_inline void learn(struct wait *w, __u64 ns)
{
	__u64 v = (ns >> 10) + 1;

	v = v < LONGEST ? v : LONGEST;
	w->squares += v * v;
}

/* The square of the chance, of 2^64. */
static __always_inline __u64 chance_of(struct slot *s, struct wait *w, __u64 every)
{
	__u64 before = w->sleeps - 1, square, chance, least;

	if (!before || !every)
		return ~0ULL;
	square = w->squares / before;
	if (s->query && w->label == s->idle)
		square >>= SELDOM;
	chance = square < every ? square * (~0ULL / every) : ~0ULL;
	least = ~0ULL / w->sleeps / w->sleeps;
	return chance > least ? chance : least;
}

/* Frame pointer, link register, stack pointer, instruction pointer as the task entered the kernel. */
static __always_inline void note_registers(struct asleep *r, struct task_struct *p)
{
	struct pt_regs *x = (struct pt_regs *)bpf_task_pt_regs(p);

	if (bpf_core_field_exists(x->ip)) {
		r->registers[0] = x->bp;
		r->registers[1] = 0;
		r->registers[2] = x->sp;
		r->registers[3] = x->ip;
	} else {
		struct pt_regs___arm *a = (void *)x;

		r->registers[0] = a->regs[29];
		r->registers[1] = a->regs[30];
		r->registers[2] = a->sp;
		r->registers[3] = a->pc;
	}
}

/* Its pages up to the first that is not there, each at its own place in `memory`. */
static __always_inline void note_memory(struct asleep *r)
{
	__u64 sp = r->registers[2], first = sp & (PAGE - 1);

	r->pages = 0;
	if (bpf_probe_read_user(r->memory + first, PAGE - first, (void *)sp))
		return;
	r->pages = 1;
#pragma clang loop unroll(full)
	for (__u32 n = 1; n < PAGES; n++) {
		if (bpf_probe_read_user(r->memory + n * PAGE, PAGE, (void *)(sp - first + n * PAGE)))
			return;
		r->pages = n + 1;
	}
}

/* A stack, or the end of a sleep, found no room. */
static __always_inline void note_lost(struct control *c, struct slot *s)
{
	__sync_fetch_and_add(&c->lost_stacks, 1);
	__sync_fetch_and_add(&c->lost_asleep_ns, s->stands_ns);
}

/* The task on this CPU has just begun to sleep. */
static __always_inline void note_sleep(void *ctx, struct slot *s, struct task_struct *p, struct wait *w)
{
	__u32 zero = 0, random = bpf_get_prandom_u32();
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	__u32 halved = bpf_ringbuf_query(&ring, AVAILABLE) / (ring_bytes / PARTS);
	struct asleep *r = 0;
	__u64 chance;

	if (!c)
		return;
	halved = halved < PARTS ? halved : PARTS - 1;
	s->sampled_ns = 0;
	chance = chance_of(s, w, c->every) >> (2 * halved) | 1;
	if ((__u64)random * random > chance)
		return;
	s->stands_ns = c->every_ns << halved;
	if (halved < PARTS - 1)
		r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		note_lost(c, s);
		return;
	}
	r->began_ns = s->since_ns;
	r->chance = chance;
	r->halved = halved;
	r->query = w->query;
	r->label = w->label;
	r->own = s->own;
	r->tid = s->tid;
	r->tgid = s->tgid;
	r->cpu = bpf_get_smp_processor_id();
	r->kernel_bytes = bpf_get_stack(ctx, r->kernel, sizeof(r->kernel), 0);
	r->user_bytes = bpf_get_stack(ctx, r->user, sizeof(r->user), USER_STACK);
	note_registers(r, p);
	note_memory(r);
	bpf_ringbuf_submit(r, NO_WAKEUP);
	s->sampled_ns = s->since_ns;
}

/* The sleep whose stack was taken has ended. */
__noinline int note_end(__u32 own, __u64 ns)
{
	struct slot *s = slot_at(own);
	__u32 zero = 0;
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	struct woken *r;

	if (!stacks || !s || !c)
		return 0;
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (r) {
		r->began_ns = s->sampled_ns;
		r->slept_ns = ns;
		r->tid = s->tid;
		r->own = own;
		bpf_ringbuf_submit(r, NO_WAKEUP);
	} else {
		note_lost(c, s);
	}
	s->sampled_ns = 0;
	return 0;
}

#endif
