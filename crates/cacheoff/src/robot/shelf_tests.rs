use super::*;
use crate::robot::HotSet;

const PLAIN: Multipliers = Multipliers { recurrence: 1.0, special: 1.0, hot: 1.0 };

fn shelf(objects: u64) -> Shelf {
    Shelf::new(0, 1, 1, objects, &[(0, 1.0)], 1)
}

fn robots(popularity: Popularity) -> RobotSettings {
    RobotSettings { popularity, ..RobotSettings::default() }
}

/// Numbers that one robot draws at a time, and which of them were new.
fn draw(shelf: &mut Shelf, settings: &RobotSettings, at: u64, count: usize) -> Vec<(u64, bool)> {
    let mut stream = Stream::new(3, at);
    let mut one = || shelf.draw(settings, 0, Duration::from_secs(at), PLAIN, &mut stream);
    (0..count).map(|_| one()).map(|(name, repeat)| (name.number, repeat)).collect()
}

#[test]
fn what_was_never_asked_for_is_new_once() {
    let drawn = draw(&mut shelf(50), &robots(Popularity::Uniform), 0, 2000);
    let mut known = HashSet::new();
    assert!(drawn.iter().all(|(number, repeat)| *repeat != known.insert(*number)));
    assert_eq!(known.len(), 50);
}

#[test]
fn a_tree_is_walked_along_the_links_of_pages_that_arrived() {
    let (mut shelf, settings) = (shelf(7), RobotSettings { public: 0.0, ..robots(Popularity::Tree(2)) });
    let mut stream = Stream::new(1, 1);
    let mut order = Vec::new();
    for turn in 0..16 {
        let (name, repeat) = shelf.draw(&settings, 5, Duration::ZERO, PLAIN, &mut stream);
        order.push(name.number);
        assert_eq!(repeat, turn > 7 || turn == 1, "{turn}");
        // The root fails the first time: nothing is known to follow it, so that it is asked for again.
        if turn > 0 {
            shelf.arrived(&settings, 5, &name);
        }
    }
    assert_eq!(order, [1, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7, 1]);
    let other = shelf.draw(&settings, 6, Duration::ZERO, PLAIN, &mut stream).0;
    assert_eq!((other.number, other.world), (1, World::Private { robot: 6 }));
}

#[test]
fn ranks_have_their_weights_and_change_hands_as_fast_as_they_should() {
    let settings = robots(Popularity::Zipf { exponent: 1.0, churn_per_hour: 0.5 });
    let mut shelf = shelf(1000);
    let mut often = |at| {
        let mut counts: HashMap<u64, u32> = HashMap::new();
        draw(&mut shelf, &settings, at, 60_000).iter().for_each(|(number, _)| *counts.entry(*number).or_default() += 1);
        counts
    };
    let (first, later) = (often(0), often(3600));
    let top = *first.values().max().unwrap();
    assert!((5_000..10_000).contains(&top), "{top}: the first of 1,000 ranks has about a tenth");
    let same = later.keys().filter(|number| **number <= 1000).count() as f64 / later.len() as f64;
    assert!((same - 0.5).abs() < 0.1, "{same} of the objects are the old ones");
}

#[test]
fn one_object_is_as_hot_as_its_phase_says() {
    let hot = Some(HotSet { share: 0.0, probability: 0.9 });
    let settings = RobotSettings { hot_set: hot, ..robots(Popularity::Uniform) };
    let (mut shelf, mut stream) = (shelf(1000), Stream::new(2, 2));
    let mut top = |hot| {
        let mut counts = HashMap::new();
        for _ in 0..1000 {
            let drawn = shelf.draw(&settings, 0, Duration::ZERO, Multipliers { hot, ..PLAIN }, &mut stream).0;
            *counts.entry(drawn.number).or_insert(0) += 1;
        }
        *counts.values().max().unwrap()
    };
    assert!(top(0.0) < 20);
    assert!((850..950).contains(&top(1.0)));
}

#[test]
fn viewers_follow_the_live_edge() {
    let settings = RobotSettings {
        direct: vec![(0, 0.5), (1, 0.5)],
        ..robots(Popularity::Live { segment: Duration::from_secs(2), window: 6 })
    };
    let mut shelf = Shelf::new(0, 1, 1, 4, &settings.direct, 2);
    let mut stream = Stream::new(1, 1);
    let mut newest = |at| {
        let mut one = || shelf.draw(&settings, 1, Duration::from_secs(at), PLAIN, &mut stream).0;
        let (list, segment) = (one(), one());
        assert_eq!((list.content, segment.content), (0, 1));
        segment.number
    };
    let (early, late) = (newest(0), newest(1000));
    assert!(late > early + 900, "{early} {late}");
}
