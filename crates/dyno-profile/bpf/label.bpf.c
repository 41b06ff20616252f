// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Runs at each tick of the profile's clocks, before the sample is written. A task that is not the server's gets no
 * sample: nothing of it is copied. Of the server's tasks the wait event word and the id of the statement, read as
 * the scheduler trace reads them, are written into the same ring just before the sample.
 */
#include "../../dyno-bpf/bpf/kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_PERF_EVENT_ARRAY 4
#define BPF_F_CURRENT_CPU 0xffffffffULL
#define ENOSPC 28

/* A label that could not be read. 0 is the server's "waits for nothing". */
#define UNREAD 0xffffffffU
/* An entry that is of no process; with `children`: there was no room for all processes, so nothing is dropped. */
#define NOBODY 0

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* src/labels.rs says the same in Rust. */
struct process {
	__u64 word; /* where the pointer to its wait event word is; 0: has none */
	__u64 query; /* where the pointer to its entry of the activity view is; 0: has none */
	__u32 query_at; /* where in that entry the id of its statement is */
	__u32 children; /* its children are the server's, and have both at the same addresses */
};

/* src/records.rs says the same in Rust. */
struct label {
	__u32 tid;
	__u32 label;
	__u64 query; /* 0: none, or not read */
};

_Static_assert(sizeof(struct process) == 24, "process");
_Static_assert(sizeof(struct label) == 16, "label");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct process);
} processes SEC(".maps");

/* An event of each CPU that writes into the ring of its clock. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} rings SEC(".maps");

struct mm_struct;

struct task_struct___child {
	struct task_struct___child *real_parent;
	struct mm_struct *mm;
	int tgid;
} __attribute__((preserve_access_index));

static __always_inline struct process *process_of(struct task_struct___child *task, __u32 pid)
{
	struct process *p = bpf_map_lookup_elem(&processes, &pid);

	if (p)
		return p;
	pid = BPF_CORE_READ(task, real_parent, tgid);
	p = bpf_map_lookup_elem(&processes, &pid);
	return p && p->children ? p : 0;
}

SEC("perf_event")
int on_clock(void *ctx)
{
	struct task_struct___child *task = (void *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid(), at = 0;
	struct process *p = process_of(task, id >> 32), *nobody;
	struct label l = {.tid = (__u32)id, .label = UNREAD};
	__u32 key = NOBODY;

	if (!p) {
		nobody = bpf_map_lookup_elem(&processes, &key);
		return nobody && nobody->children;
	}
	if (!BPF_CORE_READ(task, mm)) /* it ends, and is in no wait of its program any more */
		l.label = 0;
	else if (p->word && !bpf_probe_read_user(&at, sizeof(at), (void *)p->word) && at &&
		 bpf_probe_read_user(&l.label, sizeof(l.label), (void *)at))
		l.label = UNREAD;
	if (p->query && !bpf_probe_read_user(&at, sizeof(at), (void *)p->query) && at &&
	    bpf_probe_read_user(&l.query, sizeof(l.query), (void *)(at + p->query_at)))
		l.query = 0;
	/* where the label has no room the sample has none either: it counts as lost, once */
	return bpf_perf_event_output(ctx, &rings, BPF_F_CURRENT_CPU, &l, sizeof(l)) != -ENOSPC;
}
