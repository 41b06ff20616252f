use super::*;
use proptest::prelude::*;

fn reports() -> impl Strategy<Value = Report> {
    let figures = prop::collection::vec(prop::option::of(0_i64..1 << 60), FIGURES.len());
    let printed = prop::option::of((any::<u64>(), ".*", any::<u64>(), ".*"));
    (
        0..Outcome::ALL.len(),
        any::<i64>(),
        figures,
        prop::option::of(0.0..1e9),
        ".*",
        printed,
    )
        .prop_map(|(outcome, start_ns, figures, work, detail, printed)| Report {
            outcome: Outcome::ALL[outcome],
            start_ns,
            end_ns: start_ns.wrapping_add(1),
            figures: figures.try_into().unwrap(),
            work,
            detail,
            printed: printed.map(|(bytes, text, more, other)| {
                let second = Printed {
                    bytes: more,
                    text: other,
                };
                [Printed { bytes, text }, second]
            }),
        })
}

proptest! {
    #[test]
    fn a_report_comes_back_as_it_was_sent_however_it_is_cut(report in reports(), cut in 0_usize..400) {
        let sent = [report.encode(), report.encode()].concat();
        let (mut frames, mut got) = (Frames::default(), Vec::new());
        let cut = cut.min(sent.len());
        for part in [&sent[..cut], &sent[cut..]] {
            frames.feed(part);
            while let Some(body) = frames.next().unwrap() {
                got.push(Report::decode(&body).unwrap());
            }
        }
        prop_assert_eq!(got, vec![report.clone(), report]);
    }

    #[test]
    fn what_is_no_report_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Report::decode(&bytes);
        let _ = Order::decode(&bytes);
        let mut frames = Frames::default();
        frames.feed(&bytes);
        let _ = frames.next();
    }
}

#[test]
fn an_order_comes_back_as_it_was_sent() {
    let order = Order {
        job: 3,
        number: 17,
        not_from_ns: i64::MAX,
    };
    let mut frames = Frames::default();
    frames.feed(&order.encode());
    let body = frames.next().unwrap().unwrap();
    assert_eq!(Order::decode(&body).unwrap(), order);
    assert_eq!(frames.next().unwrap(), None);
}

#[test]
fn what_is_not_known_is_not_zero() {
    let report = Report::default();
    assert_eq!(
        Report::decode(&report.encode()[LENGTH_BYTES..])
            .unwrap()
            .get("max_rss_bytes"),
        None
    );
}
