//! The table of a proof.

use super::*;

fn row(what: &str, measured: f64) -> Row {
    Row { what: what.to_owned(), declared: 50.0, ideal: 50.0, measured, around: 5.0, unit: "%" }
}

/// A run that got no reply to a kind of request has no row about it: the others are held against their own names.
#[test]
fn a_figure_that_a_run_lacks_was_not_measured() {
    let chances = Chances { drawn: BTreeMap::new(), counted: Vec::new(), own: Vec::new() };
    let labelled = |label: &str| Ledger {
        run: crate::ledger::Run { label: label.to_owned(), ..Default::default() },
        ..Ledger::default()
    };
    let ledgers = [labelled("no proxy"), labelled("squid")];
    let table = |all: [Vec<Row>; 2]| {
        let mut text = String::new();
        let holds = chances.table(&ledgers, &all, &mut text);
        (holds, text)
    };
    let (hits, images) = (|| row("hits", 51.0), || row("images", 49.0));
    let (holds, text) = table([vec![hits(), images()], vec![images(), hits()]]);
    assert!(holds && text.matches("51.00 in").count() == 2, "{text}");
    for all in [[vec![images()], vec![hits(), images()]], [vec![hits(), images()], vec![hits()]]] {
        let (holds, text) = table(all);
        assert!(!holds && text.matches("**not measured**").count() == 1, "{text}");
        assert!(text.contains("| hits |") && text.contains("| images |"), "{text}");
    }
}

#[test]
fn a_port_that_is_not_named_is_a_free_one() {
    assert_eq!(free_unless_named(24_128), Ok(24_128));
    let taken = [0; 8].map(|port| free_unless_named(port).unwrap());
    assert!(taken.iter().all(|port| *port != 0), "{taken:?}");
}
