//! pgbench's built-in scripts, written after its manual ("What is the Transaction Actually Performed in pgbench?").

const SCRIPTS: [(&str, &str); 3] = [
    ("tpcb-like", include_str!("../../workloads/pgbench/tpcb-like.sql")),
    (
        "simple-update",
        include_str!("../../workloads/pgbench/simple-update.sql"),
    ),
    (
        "select-only",
        include_str!("../../workloads/pgbench/select-only.sql"),
    ),
];

/// The full name and the text of a built-in script; the beginning of a name that only one has suffices.
pub fn builtin(name: &str) -> Option<(&'static str, &'static str)> {
    let mut found = SCRIPTS.into_iter().filter(|(known, _)| known.starts_with(name));
    match (found.next(), found.next()) {
        (Some(script), None) => Some(script),
        _ => None,
    }
}
