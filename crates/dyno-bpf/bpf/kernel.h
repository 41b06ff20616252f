/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few kernel types we look into. Only names matter: where a field lies is found in the running
 * kernel's BTF when the program is loaded (CO-RE), and a field that is not there can be asked about
 * (bpf_core_field_exists). A type with ___suffix is another state of the type without it.
 */
#ifndef DBDYNO_KERNEL_H
#define DBDYNO_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_QUEUE 22
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_F_MMAPABLE (1U << 10)

#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_STOPPED 0x000c /* __TASK_STOPPED, __TASK_TRACED */
#define TASK_DEAD 0x0080
#define TASK_NOLOAD 0x0400
#define TASK_FROZEN 0x8000 /* 6.1 and later */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rq {
	__u64 clock;
	__u64 clock_task;
	__u64 clock_pelt;
	unsigned long lost_idle_time;
};

/* A group's queue on one CPU, and three generations of books about how long it was throttled. */
struct cfs_rq {
	struct rq *rq;
	int throttle_count;
	__u64 throttled_clock_self; /* 6.6 and later */
	__u64 throttled_clock_self_time;
};

struct cfs_rq___scaled { /* 5.19 to 6.5 */
	struct rq *rq;
	int throttle_count;
	__u64 throttled_clock_pelt;
	__u64 throttled_clock_pelt_time;
};

struct cfs_rq___old { /* to 5.18 */
	struct rq *rq;
	int throttle_count;
	__u64 throttled_clock_task;
	__u64 throttled_clock_task_time;
};

struct sched_entity {
	__u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq; /* CONFIG_FAIR_GROUP_SCHED */
};

struct sched_info { /* CONFIG_SCHED_INFO; by the clock of the run queue */
	unsigned long long run_delay;
	unsigned long long last_queued;
};

struct mm_struct;

struct thread_info {
	unsigned long flags;
};

struct task_struct {
	struct thread_info thread_info; /* CONFIG_THREAD_INFO_IN_TASK */
	unsigned int __state; /* 5.14 and later */
	int on_cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	struct mm_struct *mm;
	bool throttled; /* 6.18 and later */
	unsigned frozen : 1; /* 5.2 and later: by its group, version 2 */
	int pid;
	int tgid;
	__u64 start_boottime;
};

struct task_struct___old { /* to 5.13 */
	long state;
};

struct pt_regs {
	unsigned long bp;
	unsigned long ip;
	unsigned long sp;
};

struct pt_regs___arm {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
};

#pragma clang attribute pop

struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

#endif
