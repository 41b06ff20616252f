//! Laws of the parsers: no text makes them panic, and what is printed the kernel's way comes back.

use dyno_observe::schedstat::{self, SchedStat};
use dyno_observe::{cpu_stat, groups, host, mountinfo, psi, stat, switches};
use proptest::prelude::*;

const TICK_NS: i64 = 10_000_000;
/// Ticks that do not overflow as nanoseconds: 29 years of CPU time and more.
const TICKS: std::ops::Range<i64> = 0..i64::MAX / TICK_NS;

/// Texts that come near to the real ones, so that the parsers get beyond their first line.
fn near() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("cpu".to_owned()),
        Just("cpu0".to_owned()),
        Just("ctxt".to_owned()),
        Just("some".to_owned()),
        Just("total=".to_owned()),
        Just("usage_usec".to_owned()),
        Just("nr_periods".to_owned()),
        Just("(".to_owned()),
        Just(")".to_owned()),
        Just("-".to_owned()),
        Just("cgroup2".to_owned()),
        Just("cgroup".to_owned()),
        Just("\\040\\".to_owned()),
        Just("0::/a".to_owned()),
        Just("1:cpu:/..".to_owned()),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<i128>().prop_map(|n| n.to_string()),
        ".{0,6}",
    ];
    let separator = prop_oneof![Just(" "), Just("\n"), Just(" - "), Just(":"), Just("")];
    proptest::collection::vec((word, separator), 0..60)
        .prop_map(|parts| parts.into_iter().map(|(w, s)| w + s).collect())
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in prop_oneof![".*", near()], other in near()) {
        let _ = schedstat::parse(&text);
        let _ = stat::parse(&text, TICK_NS);
        let _ = (stat::state(&text), stat::start_code(&text), switches::parse(&text));
        let _ = host::parse(&text, TICK_NS);
        let _ = psi::parse(&text);
        let _ = cpu_stat::parse_v1(&text);
        let _ = cpu_stat::parse_v2(&text);
        let _ = cpu_stat::parse_cpuacct_stat(&text, TICK_NS);
        let _ = cpu_stat::parse_cpuacct_usage(&text);
        let _ = mountinfo::parse(&text);
        let _ = groups::locate(&text, &other, &["cpu", "cpuacct"]);
    }

    #[test]
    fn schedstat_comes_back(run_ns in 0..i64::MAX, runq_ns in 0..i64::MAX, slices in 0..i64::MAX) {
        let text = format!("{run_ns} {runq_ns} {slices}\n");
        prop_assert_eq!(schedstat::parse(&text), Ok(SchedStat { run_ns, runq_ns, slices }));
    }

    #[test]
    fn stat_comes_back_under_any_name(
        tid in 1_i64..1 << 22, comm in "[^\0]{0,15}", state in "[RSDTtZXI]",
        user in TICKS, system in TICKS, start in 0..i64::MAX, cpu in 0_i64..8192, blkio in TICKS
    ) {
        let between = |n: usize| vec!["0"; n].join(" ");
        let text = format!(
            "{tid} ({comm}) {state} {} {user} {system} {} {start} {} {cpu} 0 0 {blkio} {}\n",
            between(10), between(6), between(16), between(10),
        );
        let stat = stat::parse(&text, TICK_NS).unwrap();
        prop_assert_eq!((stat.tid, stat.comm, stat.state.to_string()), (tid, comm.as_str(), state));
        prop_assert_eq!((stat.user_ns, stat.system_ns), (user * TICK_NS, system * TICK_NS));
        prop_assert_eq!((stat.start_ticks, stat.cpu), (start, Some(cpu)));
        prop_assert_eq!(stat.blkio_ns, Some(blkio * TICK_NS));
    }

    #[test]
    fn cgroup_v2_comes_back(usage in 0..i64::MAX / 1000, periods in 0..i64::MAX, throttled in 0..i64::MAX / 1000) {
        let text = format!("usage_usec {usage}\nnr_periods {periods}\nnew_thing x\nthrottled_usec {throttled}\n");
        let expected = vec![("usage_ns", usage * 1000), ("nr_periods", periods), ("throttled_ns", throttled * 1000)];
        prop_assert_eq!(cpu_stat::parse_v2(&text), Ok(expected));
    }

    #[test]
    fn host_comes_back(times in proptest::collection::vec(TICKS, 8), cpus in 1_usize..300, switches in 0..i64::MAX) {
        let line = |name: &str| times.iter().fold(name.to_owned(), |l, t| format!("{l} {t}")) + " 0 0\n";
        let each: String = (0..cpus).map(|n| line(&format!("cpu{n}"))).collect();
        let text = format!("{}{each}intr 1 2 3\nctxt {switches}\n", line("cpu "));
        let host = host::parse(&text, TICK_NS).unwrap();
        let times: Vec<_> = times.iter().map(|t| Some(t * TICK_NS)).collect();
        prop_assert_eq!(host.times_ns.to_vec(), times);
        prop_assert_eq!((host.cpus, host.context_switches), (cpus as i64, Some(switches)));
    }

    #[test]
    fn pressure_comes_back(some in 0..i64::MAX / 1000, full in 0..i64::MAX / 1000) {
        let text = format!("some avg10=0.00 avg60=1.00 avg300=0.10 total={some}\nfull avg10=0.00 total={full}\n");
        let pressure = psi::parse(&text).unwrap();
        prop_assert_eq!((pressure.some_ns, pressure.full_ns), (Some(some * 1000), Some(full * 1000)));
    }

    #[test]
    fn a_group_is_followed_by_all_above_it(parts in proptest::collection::vec("[a-z]{1,5}", 0..6)) {
        let path = parts.iter().fold(String::new(), |p, part| p + "/" + part);
        let cgroup = format!("0::{}\n", if path.is_empty() { "/" } else { &path });
        let mountinfo = "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n";
        let found = groups::locate(&cgroup, mountinfo, &[]);
        prop_assert_eq!(found.len(), parts.len() + 1);
        prop_assert_eq!(&found[0].path, &format!("/cg{path}"));
        for pair in found.windows(2) {
            let parent = pair[0].path.rsplit_once('/').unwrap().0;
            prop_assert_eq!(parent, &pair[1].path);
        }
    }
}
