/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the program and its reader share: memory of array maps that the reader maps (src/layout.rs says
 * the same in Rust, and a test compares the two by the object's BTF). All times are CLOCK_MONOTONIC
 * nanoseconds.
 */
#ifndef DBDYNO_SHARED_H
#define DBDYNO_SHARED_H

#define WAITS 128 /* pairs of label and statement a task may have; a power of two */
#define CELLS 1024 /* cells of its histograms; a power of two */
#define BUCKETS 128 /* of a histogram: four for each power of two ns from 2^10; the first holds all below */
#define CALLS 64 /* system calls a task may use; a power of two */
#define SIZED 8  /* system calls that transfer data and whose sizes are counted */
#define SIZES 24 /* of a size: 0, 1, 2, 4, ... 2^21, and 2^22 bytes or more */
#define TIDS 4   /* tids a block of places is for */
#define CHAIN 127 /* most frames of a chain: kernel.perf_event_max_stack */
#define PAGE 4096 /* the least there is */
#define PAGES 4   /* of a user stack */

/* A label that could not be read. 0 is the server's "waits for nothing". */
#define UNREAD 0xffffffffU

/* Instead of its label: a signal or a tracer has stopped the task, or its control group is frozen. */
#define STOPPED 0xfffffffeU
#define FROZEN 0xfffffffdU

/* Statements that found no room. 0 is no statement. */
#define OTHERS (~0ULL)

/* What a task is doing. */
enum doing {
	UNKNOWN, /* told to watch it, nothing seen yet: its first event says what it was doing since then */
	RUNNING,
	QUEUED, /* in the run queue, since it lost its CPU */
	ASLEEP,
	WOKEN, /* in the run queue since `woken_ns`, asleep before: added up when it gets its CPU */
	ENDED,
};

/* Sums of one label in one statement. */
struct wait {
	__u32 label;
	__u32 used;
	__u64 query; /* id of the statement; 0: none, or not read */
	__u64 sleep_ns;
	__u64 runq_ns;
	__u64 throttled_ns; /* inside runq_ns */
	__u64 sleeps;
	__u64 preempted;
	__u64 run_samples; /* clock ticks that found it on a CPU under this label */
	__u64 run_ns; /* slices on a CPU at whose end it was found so; a tick ends a slice, too */
	__u64 came_ns; /* inside run_ns: of slices that began in another statement */
	__u64 left_ns; /* not inside: slices that began in this statement and ended in another */
	__u64 squares; /* of sleeps, in 2^10 ns; where stacks are taken */
	__u64 begun; /* sleeps that began a wait: the others go on with one, in the same system call */
	__u64 unclear; /* sleeps of which that is not known: in `begun`, too */
};

/*
 * One watched task. run_ns + runq_ns + sleep_ns == since_ns - first_ns at all times that `seq` is even, and
 * the sums of waits, with what is owed, are those of the task.
 * Four cache lines: who wakes it, maybe on another CPU, needs the first alone; the last is seldom needed.
 */
struct slot {
	__u32 seq; /* odd while it is written */
	__u32 tid;
	__u32 tgid;
	__u32 doing;
	__u64 since_ns; /* up to here all time is in the sums */
	__u64 woken_ns;
	__u64 word; /* where the pointer to its wait event word is; 0: has none */
	__u64 queue; /* the group's queue that it waits in and whose quota may be used up; 0: none */
	__u64 queue_clock_ns; /* how long that queue had been throttled when the wait began */
	__u32 wait; /* index: label of the sleep or queue under way, or of the last; of a tick since */
	__u32 blocked; /* the sleep under way is uninterruptible */

	__u64 run_ns;
	__u64 runq_ns;
	__u64 sleep_ns;
	__u64 blocked_ns; /* inside sleep_ns */
	__u64 voluntary;
	__u64 involuntary;
	__u64 exec_ns; /* the kernel's own sums when it last left a CPU: time on a CPU, */
	__u64 delay_ns; /* time in the run queue */

	__u64 query; /* where the pointer to its entry of the activity view is; 0: has none */
	__u32 query_at; /* where in that entry the id of its statement is */
	__u32 idle; /* label of a wait for the next statement: the queue after it belongs to that one, */
	__u64 owed_ns; /* whose id is read only at the end of its first slice: up to then it is here, */
	__u64 owed_throttled_ns;
	__u32 owes; /* 1: so it is */
	__u32 seeded; /* the wait under way began before we looked: not in the histograms */
	__u32 taken; /* how many of `waits` are used */
	__u32 unplaced; /* durations that found no cell */
	__u32 own; /* its own number */
	__u32 in_call; /* 1 + index of its last sleep, since when it was not in user mode; 0: it was */
	__u64 sampled_ns; /* when the sleep under way began, if its stack was taken; 0: it was not */

	__u64 first_ns; /* watched since */
	__u64 start_boottime_ns; /* 0: not seen yet */
	__u64 throttled_ns; /* inside runq_ns */
	__u64 lost; /* labels that found no room, events that did not fit and could not be made good */
	__u64 mended; /* events that were not seen, and made good from the kernel's sums */
	__u32 seed_label; /* read by whoever told to watch it: its label if it was off the CPU then */
	__u32 seed_blocked;
	__u64 seed_query;
	__u64 stands_ns; /* the sleep whose stack was taken stands for about so much */

	struct wait waits[WAITS];

	/* How many waits lasted how long: 1 + (index of wait << 8 | queue << 7 | bucket), and how many. */
	__u16 cells[CELLS];
	__u32 counts[CELLS];
};

/* System calls of one task, the same number as its slot. */
struct call {
	__u32 number;
	__u32 used;
	__u64 calls;
	__u64 errors;
	__u64 time_ns; /* from entry to exit */
	__u64 run_ns; /* of which on a CPU */
	__u64 runq_ns; /* in the run queue */
	__u64 client_ns; /* asleep, waiting for the client */
	__u64 bytes; /* that it returned to have transferred, of those that transfer data */
	__u64 unclear; /* calls that were left by a switch that was not seen: run_ns is a lower bound */
};

struct calls {
	__u32 seq;
	__u32 under_way; /* number + 1; 0: none */
	__u64 since_ns;
	__u64 since_run_ns; /* the slot's sums at entry, with what was under way */
	__u64 since_runq_ns;
	__u64 since_switches;
	__u64 lost;
	struct call each[CALLS];
	__u64 sizes[SIZED][SIZES];
};

/* Slot numbers of four tids; 0: not watched. */
struct places {
	__u16 slot[TIDS];
};

/* A sleep that was chosen, as it began; then, how long it was. */
struct asleep {
	__u64 began_ns;
	__u64 chance; /* the square of the chance to be chosen, of 2^64 */
	__u64 query;
	__u32 label;
	__u32 own; /* number of its slot */
	__u32 tid;
	__u32 tgid;
	__u32 cpu;
	__s32 kernel_bytes; /* of `kernel`; negative: none */
	__s32 user_bytes;
	__u32 pages; /* of `memory` */
	__u32 halved; /* so often was the chance halved, as the ring had been filled so far */
	__u32 spare;
	__u64 registers[4]; /* frame pointer, link register, stack pointer, instruction pointer; all 0: none */
	__u64 kernel[CHAIN]; /* leaf first */
	__u64 user[CHAIN]; /* by frame pointers */
	__u8 memory[PAGES * PAGE]; /* the page of the stack pointer, of which the part from there on, and those after it */
};

struct woken {
	__u64 began_ns;
	__u64 slept_ns;
	__u32 tid;
	__u32 own;
};

/* What holds for all. */
struct control {
	__u32 main_tgid; /* its children are watched from their birth; 0: nobody's */
	__u32 throttle_known; /* written by look_throttled: this kernel tells throttled time */
	__u64 word; /* for these children, */
	__u64 query; /* and these three */
	__u32 query_at;
	__u32 idle;
	__u64 lost; /* children that found no slot */
	__u64 throttled_now_ns; /* what look_throttled found */
	__u64 every; /* square of the time asleep that a stack is to stand for, in 2^10 ns; 0: none is left out */
	__u64 every_ns; /* that time itself */
	__u64 lost_stacks; /* and ends of sleeps, that found no room in the ring */
	__u64 lost_asleep_ns; /* about so much sleep they stood for */
	__u64 born; /* children that found a slot */
	__u32 cleared; /* flags of tasks that were not set at some switch from a CPU, */
	__u32 missing; /* and at some switch to one (waiting.h) */
};

_Static_assert(sizeof(struct wait) == 112, "wait");
_Static_assert(sizeof(struct slot) == 256 + WAITS * 112 + CELLS * 6, "slot");
_Static_assert(sizeof(struct calls) == 48 + CALLS * 72 + SIZED * SIZES * 8, "calls");
_Static_assert(sizeof(struct asleep) == 96 + 2 * CHAIN * 8 + PAGES * PAGE, "asleep");
_Static_assert(sizeof(struct woken) == 24, "woken");
_Static_assert(sizeof(struct control) == 96, "control");

#endif
