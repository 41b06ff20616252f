use proptest::prelude::*;

use super::*;
use crate::layout::first_index;
use dyno_bpf::Plain;

const CLIENT_READ: u32 = 0x0600_0000;

fn slot(state: u32, since_ns: u64) -> Slot {
    let mut slot = Slot::zeroed();
    slot.doing = state;
    slot.first_ns = 1_000;
    slot.since_ns = since_ns;
    slot.run_ns = 300;
    slot.runq_ns = 100;
    slot.sleep_ns = since_ns - slot.first_ns - 400;
    slot.wait = first_index(CLIENT_READ) as u32;
    slot.waits[slot.wait as usize] = Wait {
        label: CLIENT_READ,
        used: 1,
        sleep_ns: slot.sleep_ns,
        runq_ns: 100,
        throttled_ns: 0,
        sleeps: 7,
        begun: 5,
        unclear: 1,
        preempted: 1,
        run_ns: 300,
        run_samples: 4,
        ..Wait::default()
    };
    slot
}

fn all(sums: Sums) -> i64 {
    sums.run_ns + sums.runq_ns + sums.sleep_ns
}

#[test]
fn what_is_under_way_goes_to_what_the_task_is_doing() {
    let (running, labels) = sums(&slot(doing::RUNNING, 2_000), Seed::Asleep, 2_050, 0);
    assert_eq!(
        (running.run_ns, running.runq_ns, running.sleep_ns),
        (350, 100, 600)
    );
    assert_eq!((labels[0].sleep_ns, labels[0].runq_ns), (600, 100));

    let (queued, labels) = sums(&slot(doing::QUEUED, 2_000), Seed::Asleep, 2_050, 20);
    assert_eq!(
        (queued.run_ns, queued.runq_ns, queued.throttled_ns),
        (300, 150, 20)
    );
    assert_eq!(
        (labels[0].runq_ns, labels[0].throttled_ns, labels[0].sleeps),
        (150, 20, 7)
    );

    let (asleep, labels) = sums(&slot(doing::ASLEEP, 2_000), Seed::Runnable, 2_050, 0);
    assert_eq!((asleep.sleep_ns, asleep.blocked_ns), (650, 0));
    assert_eq!(labels[0].sleep_ns, 650);

    let mut woken = slot(doing::WOKEN, 2_000);
    woken.woken_ns = 2_030;
    let (woken, labels) = sums(&woken, Seed::Runnable, 2_050, 99);
    assert_eq!(
        (woken.sleep_ns, woken.runq_ns, woken.throttled_ns),
        (630, 120, 20)
    );
    assert_eq!((labels[0].sleep_ns, labels[0].runq_ns), (630, 120));

    let (ended, _) = sums(&slot(doing::ENDED, 2_000), Seed::Runnable, 9_999, 0);
    assert_eq!(all(ended), 1_000);
}

#[test]
fn an_uninterruptible_sleep_is_blocked_time_inside_sleep() {
    let mut blocked = slot(doing::ASLEEP, 2_000);
    blocked.blocked = 1;
    let (sums, _) = sums(&blocked, Seed::Runnable, 2_050, 0);
    assert_eq!((sums.sleep_ns, sums.blocked_ns), (650, 50));
}

#[test]
fn without_an_event_since_it_was_watched_the_seed_says_what_it_does() {
    let mut fresh = Slot::zeroed();
    (fresh.first_ns, fresh.since_ns, fresh.seed_label) = (1_000, 1_000, CLIENT_READ);
    let (run, labels) = sums(&fresh, Seed::from_state('R'), 1_500, 0);
    assert_eq!((run.run_ns, run.sleep_ns, labels[0].run_ns), (500, 0, 500));
    let (asleep, labels) = sums(&fresh, Seed::from_state('S'), 1_500, 0);
    assert_eq!((asleep.run_ns, asleep.sleep_ns, asleep.blocked_ns), (0, 500, 0));
    assert_eq!(
        (labels[0].name.code, labels[0].sleep_ns),
        (Some(CLIENT_READ), 500)
    );
    let (blocked, _) = sums(&fresh, Seed::from_state('D'), 1_500, 0);
    assert_eq!((blocked.sleep_ns, blocked.blocked_ns), (500, 500));
}

#[test]
fn a_label_that_was_not_read_is_not_the_label_of_no_wait() {
    let mut both = slot(doing::RUNNING, 2_000);
    both.waits[first_index(UNREAD)] = Wait {
        label: UNREAD,
        used: 1,
        runq_ns: 5,
        ..Wait::default()
    };
    both.waits[first_index(0)] = Wait {
        label: 0,
        used: 1,
        runq_ns: 6,
        ..Wait::default()
    };
    let (_, labels) = sums(&both, Seed::Runnable, 2_000, 0);
    let runq = |code| labels.iter().find(|l| l.name.code == code).map(|l| l.runq_ns);
    assert_eq!(
        (runq(None), runq(Some(0)), runq(Some(CLIENT_READ))),
        (Some(5), Some(6), Some(100))
    );
}

#[test]
fn a_queue_that_is_owed_is_in_the_last_label_until_its_statement_is_known() {
    let mut owing = slot(doing::RUNNING, 2_000);
    (owing.owes, owing.owed_ns, owing.runq_ns) = (1, 40, 140);
    let (sums, labels) = sums(&owing, Seed::Runnable, 2_000, 0);
    assert_eq!((sums.runq_ns, labels[0].runq_ns), (140, 140));
    assert_eq!(labels[0].open_ns, 40);
    let under_way: Vec<_> = durations(&owing)
        .iter()
        .map(|d| (d.queue, d.from_ns, d.count))
        .collect();
    assert_eq!(under_way, [(true, None, 1)]);
}

#[test]
fn a_queue_under_way_is_open_only_after_a_wait_for_the_next_statement() {
    let mut queued = slot(doing::QUEUED, 2_000);
    let open = |slot: &Slot| sums(slot, Seed::Runnable, 2_050, 0).1[0].open_ns;
    (queued.query, queued.idle) = (1, CLIENT_READ);
    assert_eq!(open(&queued), 50);
    queued.query = 0; // ids of statements are not read
    assert_eq!(open(&queued), 0);
    (queued.query, queued.idle) = (1, CLIENT_READ + 1);
    assert_eq!(open(&queued), 0);
}

#[test]
fn a_copy_whose_labels_do_not_add_up_to_its_sums_is_not_whole() {
    let whole = slot(doing::ASLEEP, 2_000);
    assert!(adds_up(&whole));
    let wait = whole.wait as usize;
    let spoil: [fn(&mut Slot, usize); 5] = [
        |slot, wait| slot.waits[wait] = Wait::default(), // its labels are missing whole
        |slot, wait| slot.waits[wait].sleep_ns -= 1,
        |slot, wait| slot.waits[wait].runq_ns += 1,
        |slot, wait| slot.waits[wait].run_ns += 1,
        |slot, _| slot.since_ns += 1,
    ];
    for of in spoil {
        let mut torn = whole;
        of(&mut torn, wait);
        assert!(!adds_up(&torn));
    }
    let mut owing = whole;
    (owing.owed_ns, owing.waits[wait].runq_ns) = (40, 60);
    assert!(adds_up(&owing));
    let mut lost = whole;
    (lost.lost, lost.run_ns, lost.since_ns) = (1, 350, 2_050); // a slice that has no label
    assert!(adds_up(&lost));
}

#[test]
fn a_task_that_no_event_and_no_tick_has_met_may_run_or_wait_for_a_cpu() {
    let mut fresh = Slot::zeroed();
    assert!(undecided(&fresh, Seed::Runnable));
    assert!(!undecided(&fresh, Seed::Asleep));
    fresh.waits[3].run_samples = 1;
    assert!(!undecided(&fresh, Seed::Runnable));
    fresh.waits[3].run_samples = 0;
    fresh.doing = doing::QUEUED;
    assert!(!undecided(&fresh, Seed::Runnable));
}

#[test]
fn a_histogram_has_the_count_of_each_cell_and_what_is_under_way() {
    let mut asleep = slot(doing::ASLEEP, 2_000);
    asleep.cells[5] = (1 + (asleep.wait << 8 | 0x37)) as u16;
    asleep.counts[5] = 7;
    let rows = durations(&asleep);
    let of = |queue, from_ns| {
        let rows = rows.iter().filter(|d| d.queue == queue && d.from_ns == from_ns);
        rows.map(|d| d.count).sum::<i64>()
    };
    assert_eq!(rows[0].name.code, Some(CLIENT_READ));
    assert_eq!(of(false, Some(from_ns(0x37))), 7);
    assert_eq!((of(false, None), of(true, None)), (1, 1));
    asleep.seeded = 1;
    assert_eq!(durations(&asleep).len(), 1);
}

proptest! {
    #[test]
    fn buckets_grow_by_a_quarter_at_most(n in 1_usize..127) {
        let (from, to) = (from_ns(n), from_ns(n + 1));
        prop_assert!(to > from && (to - from) * 4 <= from);
    }

    #[test]
    fn every_nanosecond_since_it_was_first_watched_is_in_one_sum_and_under_one_label(
        state in doing::RUNNING..=doing::WOKEN, since in 2_000_u64..10_000, more in 0_u64..100_000, throttled: u64
    ) {
        let slot = slot(state, since);
        let (sums, labels) = sums(&slot, Seed::Runnable, since + more, throttled);
        prop_assert_eq!(all(sums), (since + more - slot.first_ns) as i64);
        prop_assert_eq!(labels.iter().map(|l| l.sleep_ns).sum::<i64>(), sums.sleep_ns);
        prop_assert_eq!(labels.iter().map(|l| l.runq_ns).sum::<i64>(), sums.runq_ns);
        prop_assert_eq!(labels.iter().map(|l| l.run_ns).sum::<i64>(), sums.run_ns);
        prop_assert!(sums.throttled_ns <= sums.runq_ns);
    }

    #[test]
    fn sums_never_go_back_from_one_read_to_the_next(
        state in doing::RUNNING..=doing::WOKEN, first in 2_000_u64..5_000, then in 0_u64..5_000
    ) {
        let slot = slot(state, 2_000);
        let (before, _) = sums(&slot, Seed::Runnable, first, 0);
        let (after, _) = sums(&slot, Seed::Runnable, first + then, 0);
        prop_assert!(before.run_ns <= after.run_ns && before.runq_ns <= after.runq_ns);
        prop_assert!(before.sleep_ns <= after.sleep_ns);
        prop_assert_eq!(all(after) - all(before), then as i64);
    }
}
