/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps, and the way to a task's slot. */
#ifndef DBDYNO_MAPS_H
#define DBDYNO_MAPS_H

#include "../../dyno-bpf/bpf/kernel.h"
#include "shared.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

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

/*
 * Adds to `seq`, with all stores before it seen before those after it. On x86 a processor keeps their order, so it is the
 * compiler alone that has to. Elsewhere an atomic addition whose result is used orders them: kernels know it since 5.12, those
 * of 64-bit ARM since 5.18. Older ones refuse a program that has one, so these processors have an object of their own.
 */
static __always_inline void ordered_add(__u32 *seq, __u32 n)
{
#ifdef WEAKLY_ORDERED
	__u32 before = __sync_fetch_and_add(seq, n);

	asm volatile("" : : "r"(before) : "memory"); /* unused, it would be an addition that orders nothing */
#else
	barrier();
	*(volatile __u32 *)seq += n;
	barrier();
#endif
}

/* The reader takes what it copied between two equal even values of `seq`. */
static __always_inline void begin(struct slot *s)
{
	ordered_add(&s->seq, 1);
}

static __always_inline void end(struct slot *s)
{
	ordered_add(&s->seq, 1);
}

#endif
