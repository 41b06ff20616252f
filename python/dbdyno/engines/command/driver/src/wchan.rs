//! Families of the kernel function that a task sleeps in (`/proc/PID/task/TID/wchan`, proc(5)).

/// Beginnings of names, and the family. The first that fits counts.
const FAMILIES: &[(&str, &str)] = &[
    ("futex", "futex"),
    ("do_futex", "futex"),
    ("rwsem", "kernel lock"),
    ("__rwsem", "kernel lock"),
    ("down_", "kernel lock"),
    ("mutex_", "kernel lock"),
    ("__mutex", "kernel lock"),
    ("pipe_", "pipe"),
    ("anon_pipe", "pipe"),
    ("fifo_", "pipe"),
    ("wait_for_partner", "pipe"),
    ("do_wait", "child"),
    ("kernel_wait", "child"),
    ("wait_for_vfork_done", "child"),
    ("kernel_clone", "child"),
    ("hrtimer_nanosleep", "timer"),
    ("do_nanosleep", "timer"),
    ("common_nsleep", "timer"),
    ("schedule_timeout", "timer"),
    ("schedule_hrtimeout", "timer"),
    ("ep_poll", "poll"),
    ("do_epoll", "poll"),
    ("do_poll", "poll"),
    ("do_sys_poll", "poll"),
    ("poll_schedule", "poll"),
    ("do_select", "poll"),
    ("sk_", "socket"),
    ("__skb_wait", "socket"),
    ("skb_wait", "socket"),
    ("unix_", "socket"),
    ("inet_", "socket"),
    ("tcp_", "socket"),
    ("do_accept", "socket"),
    ("do_sigtimedwait", "signal"),
    ("sigsuspend", "signal"),
    ("do_signal_stop", "signal"),
    ("pause", "signal"),
    ("n_tty", "terminal"),
    ("tty_", "terminal"),
    ("wait_woken", "terminal"),
    ("locks_", "file lock"),
    ("flock", "file lock"),
    ("fcntl_setlk", "file lock"),
    ("jbd2", "journal"),
    ("log_wait", "journal"),
    ("xlog", "journal"),
    ("xfs_log", "journal"),
    ("balance_dirty", "writeback"),
    ("folio_wait_writeback", "writeback"),
    ("wait_on_page_writeback", "writeback"),
    ("folio_wait", "read"),
    ("__folio", "read"),
    ("filemap_", "read"),
    ("wait_on_page", "read"),
    ("io_schedule", "block"),
    ("blk_", "block"),
    ("rq_qos", "block"),
    ("submit_bio", "block"),
    ("wait_on_buffer", "block"),
    ("__wait_on_buffer", "block"),
    ("bit_wait", "block"),
    ("io_cqring", "io_uring"),
];

/// `None`: it runs, or may not be asked.
pub fn family(wchan: &str) -> Option<&'static str> {
    if wchan.is_empty() || wchan == "0" {
        return None;
    }
    let bare = wchan
        .trim_start_matches("__x64_sys_")
        .trim_start_matches("__arm64_sys_");
    let known = FAMILIES.iter().find(|(start, _)| bare.starts_with(start));
    Some(known.map_or("other", |(_, family)| family))
}

#[cfg(test)]
mod tests {
    use super::family;

    #[test]
    fn families_of_what_programs_mostly_sleep_in() {
        for (wchan, expected) in [
            ("0", None),
            ("", None),
            ("futex_do_wait", Some("futex")),
            ("futex_wait_queue_me", Some("futex")),
            ("anon_pipe_read", Some("pipe")),
            ("pipe_wait", Some("pipe")),
            ("do_wait", Some("child")),
            ("hrtimer_nanosleep", Some("timer")),
            ("ep_poll", Some("poll")),
            ("folio_wait_bit_common", Some("read")),
            ("folio_wait_writeback", Some("writeback")),
            ("jbd2_log_wait_commit", Some("journal")),
            ("__x64_sys_pause", Some("signal")),
            ("kthreadd", Some("other")),
        ] {
            assert_eq!(family(wchan), expected, "{wchan}");
        }
    }
}
