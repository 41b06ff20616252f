//! Parsers on recorded and hand-made texts: `tests/golden/README.md` says where each came from.

use std::fs;
use std::path::PathBuf;

use dyno_observe::psi::Pressure;
use dyno_observe::schedstat::{self, SchedStat};
use dyno_observe::switches::{self, Switches};
use dyno_observe::task::DelayAccounting;
use dyno_observe::{cpu_stat, groups, host, psi, stat};

const TICK_NS: i64 = 10_000_000;

fn golden(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let bytes = fs::read(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn schedstat_recorded() {
    let expected = SchedStat {
        run_ns: 220_085_791,
        runq_ns: 24_373_056,
        slices: 417,
    };
    assert_eq!(schedstat::parse(&golden("task/schedstat-6.18.txt")), Ok(expected));
}

#[test]
fn schedstat_of_a_kernel_without_statistics_is_all_zero() {
    let zero = SchedStat {
        run_ns: 0,
        runq_ns: 0,
        slices: 0,
    };
    assert_eq!(schedstat::parse(&golden("task/schedstat-off.txt")), Ok(zero));
}

#[test]
fn stat_takes_each_figure_from_the_field_that_proc_5_numbers() {
    // Field n holds 1000 + n.
    let text = golden("task/stat-numbered.txt");
    let stat = stat::parse(&text, TICK_NS).unwrap();
    assert_eq!((stat.tid, stat.comm, stat.state), (1001, "numbered", 'D'));
    assert_eq!((stat.user_ns, stat.system_ns), (1014 * TICK_NS, 1015 * TICK_NS));
    assert_eq!(stat.children_ns, Some((1016 + 1017) * TICK_NS));
    assert_eq!((stat::state(&text), stat::start_code(&text)), (Ok('D'), Ok(1026)));
    assert_eq!(
        (stat.start_ticks, stat.cpu, stat.blkio_ns),
        (1022, Some(1039), Some(1042 * TICK_NS))
    );
}

#[test]
fn switches_recorded() {
    let expected = Switches {
        voluntary: 5,
        involuntary: 30,
    };
    assert_eq!(switches::parse(&golden("task/status-6.18.txt")), Ok(expected));
    assert!(switches::parse("Name:\tx\nvoluntary_ctxt_switches:\t1\n").is_err());
}

#[test]
fn stat_of_old_kernels_lacks_later_fields_and_they_are_unknown() {
    let text = golden("task/stat-2.2.txt");
    let stat = stat::parse(&text, TICK_NS).unwrap();
    assert_eq!((stat.start_ticks, stat.cpu, stat.blkio_ns), (1022, None, None));
    let text = golden("task/stat-2.6.17.txt");
    let stat = stat::parse(&text, TICK_NS).unwrap();
    assert_eq!(
        (stat.start_ticks, stat.cpu, stat.blkio_ns),
        (1022, Some(1039), None)
    );
}

#[test]
fn stat_recorded_with_hostile_names() {
    let text = golden("task/stat-hostile-name.txt");
    let stat = stat::parse(&text, TICK_NS).unwrap();
    assert_eq!((stat.tid, stat.comm, stat.state), (16594, "a) R 1 (b c", 'R'));
    assert_eq!((stat.user_ns, stat.system_ns), (5 * TICK_NS, 0));
    assert_eq!((stat.start_ticks, stat.cpu), (273_330, Some(1)));

    let text = golden("task/stat-not-utf8.txt");
    let stat = stat::parse(&text, TICK_NS).unwrap();
    assert!(stat.comm.ends_with(") S"), "{:?}", stat.comm);
    assert_eq!(stat.state, 'R');
}

#[test]
fn cut_off_or_foreign_texts_are_errors_not_zeros() {
    for text in ["", "1", "1 2", "1 2 x", "-1 2 3", "1 2 99999999999999999999"] {
        assert!(schedstat::parse(text).is_err(), "{text:?}");
    }
    for text in ["", "1", "1 (a", "1 a) S", ") (", "1 (a) S 1 2 3", "1 (a)"] {
        assert!(stat::parse(text, TICK_NS).is_err(), "{text:?}");
    }
    for text in ["", "cpu0 1 2 3 4\n", "cpu  \n", "cpu  x\n", "cpu  1\nctxt \n"] {
        assert!(host::parse(text, TICK_NS).is_err(), "{text:?}");
    }
    for text in ["", "some avg10=0.00\n", "full total=x\n", "total=1"] {
        assert!(psi::parse(text).is_err(), "{text:?}");
    }
    assert!(cpu_stat::parse_v2("usage_usec\n").is_err());
    assert!(cpu_stat::parse_v2("usage_usec 1\nusage_usec 2\n").is_err());
    assert!(cpu_stat::parse_cpuacct_usage("").is_err());
}

#[test]
fn cgroup_v1_recorded_under_a_quota_of_20_ms() {
    let entries = cpu_stat::parse_v1(&golden("cgroup/v1-cpu.stat-6.18.txt"));
    let expected = vec![
        ("nr_periods", 21),
        ("nr_throttled", 21),
        ("throttled_ns", 1_588_487_139),
    ];
    assert_eq!(entries, Ok(expected));
    let entries = cpu_stat::parse_cpuacct_stat(&golden("cgroup/v1-cpuacct.stat-6.18.txt"), TICK_NS);
    assert_eq!(
        entries,
        Ok(vec![("user_ns", 40 * TICK_NS), ("system_ns", TICK_NS)])
    );
    for (file, value) in [
        ("usage", 420_988_687),
        ("usage_user", 443_929_832),
        ("usage_sys", 16_000_000),
    ] {
        let text = golden(&format!("cgroup/v1-cpuacct.{file}-6.18.txt"));
        assert_eq!(cpu_stat::parse_cpuacct_usage(&text), Ok(value), "{file}");
    }
}

#[test]
fn cgroup_v1_of_an_older_kernel() {
    let entries = cpu_stat::parse_v1(&golden("cgroup/v1-cpu.stat-3.10.txt"));
    let expected = vec![
        ("nr_periods", 1200),
        ("nr_throttled", 17),
        ("throttled_ns", 1_846_552_087),
    ];
    assert_eq!(entries, Ok(expected));
}

#[test]
fn cgroup_v2_microseconds_become_nanoseconds() {
    let entries = cpu_stat::parse_v2(&golden("cgroup/v2-cpu.stat-throttled.txt"));
    let expected = vec![
        ("usage_ns", 80_123_456_000),
        ("user_ns", 61_000_001_000),
        ("system_ns", 19_123_455_000),
        ("nr_periods", 901),
        ("nr_throttled", 877),
        ("throttled_ns", 70_654_321_000),
    ];
    assert_eq!(entries, Ok(expected));
}

#[test]
fn cgroup_v2_without_the_cpu_controller_says_nothing_of_throttling() {
    let entries = cpu_stat::parse_v2(&golden("cgroup/v2-cpu.stat-no-controller.txt")).unwrap();
    let keys: Vec<_> = entries.iter().map(|e| e.0).collect();
    assert_eq!(keys, ["usage_ns", "user_ns", "system_ns"]);
}

#[test]
fn host_of_160_cpus() {
    let host = host::parse(&golden("host/stat-160cpu.txt"), TICK_NS).unwrap();
    // Sums over CPUs of user 1000+n, nice n, system 500+n, idle 90000+10n, iowait n%7, softirq n%3, steal n%5.
    let ticks = [172_720, 12_720, 92_720, 14_527_200, 477, 0, 159, 320];
    assert_eq!(host.times_ns, ticks.map(|t| Some(t * TICK_NS)));
    assert_eq!(host.cpus, 160);
    assert_eq!(host.context_switches, Some(18_446_744_073));
    assert_eq!((host.procs_running, host.procs_blocked), (Some(37), Some(4)));
}

#[test]
fn host_recorded_and_an_old_one_that_knows_four_times() {
    let host = host::parse(&golden("host/stat-2cpu-6.18.txt"), TICK_NS).unwrap();
    assert_eq!(host.cpus, 2);
    assert!(host.times_ns.iter().all(Option::is_some));
    let old = host::parse(&golden("host/stat-2.4.txt"), TICK_NS).unwrap();
    let known = [1001, 1002, 1003, 1004].map(|t| Some(t * TICK_NS));
    assert_eq!(old.times_ns[..4], known);
    assert_eq!(old.times_ns[4..], [None; 4]);
    assert_eq!((old.cpus, old.procs_running), (1, None));
}

#[test]
fn pressure_totals_are_microseconds() {
    let cpu = psi::parse(&golden("host/pressure-cpu-4.20.txt"));
    assert_eq!(
        cpu,
        Ok(Pressure {
            some_ns: Some(123_456_789_000),
            full_ns: None
        })
    );
    let io = psi::parse(&golden("host/pressure-io-6.18.txt")).unwrap();
    let text = golden("host/pressure-io-6.18.txt");
    let totals: Vec<i64> = text
        .lines()
        .map(|l| l.rsplit('=').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(
        (io.some_ns, io.full_ns),
        (Some(totals[0] * 1000), Some(totals[1] * 1000))
    );
}

#[test]
fn groups_of_a_process_innermost_first() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/groups");
    let mut cases = 0;
    for case in fs::read_dir(root)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
    {
        let text = |file: &str| golden(&format!("groups/{case}/{file}"));
        let found = groups::locate(&text("cgroup"), &text("mountinfo"), &["cpu", "cpuacct"]);
        let found: Vec<String> = found
            .iter()
            .map(|g| format!("{} {}", g.version, g.path))
            .collect();
        let expected: Vec<String> = text("expected").lines().map(str::to_owned).collect();
        assert_eq!(found, expected, "{case}");
        cases += 1;
    }
    assert!(cases >= 10, "only {cases} cases");
}

#[test]
fn a_zero_of_block_io_is_believed_only_where_accounting_was_on_since_boot() {
    assert_eq!(
        DelayAccounting::parse("0\n", "quiet delayacct"),
        DelayAccounting::Off
    );
    assert_eq!(
        DelayAccounting::parse("", "quiet delayacct"),
        DelayAccounting::Off
    );
    assert_eq!(
        DelayAccounting::parse("1\n", "quiet nodelayacct"),
        DelayAccounting::On
    );
    assert_eq!(
        DelayAccounting::parse("1\n", "quiet delayacct ro"),
        DelayAccounting::SinceBoot
    );
}
