use super::*;
use proptest::prelude::*;

fn law() -> Law {
    let plain = |name: &str, size, cachable| Content {
        cachable,
        endings: vec![(".gif".into(), 0.6), (".png".into(), 0.4)],
        ..Content::plain(name, "image/gif", size, 1 << 40)
    };
    let embeds = Some(Embeds { count: Distribution::Zipf(13.0), contents: vec![(0, 1.0)] });
    let contents = vec![
        plain("image", Distribution::Exponential(4608.0), 0.8),
        Content { embeds, ..plain("HTML", Distribution::Exponential(8704.0), 0.9) },
    ];
    Law { seed: 42, tag: 0xabc, epoch: 1_800_000_000, contents, redirect: 0.2, query: 0.3, ..Law::default() }
}

fn any_name() -> impl Strategy<Value = Name> {
    let world = prop_oneof![
        any::<u16>().prop_map(|worker| World::Public { worker }),
        any::<u32>().prop_map(|robot| World::Private { robot }),
    ];
    (any::<u32>(), 0u8..2, world, any::<u64>(), any::<bool>())
        .prop_map(|(server, content, world, number, embedded)| Name { server, content, world, number, embedded })
}

proptest! {
    #[test]
    fn a_path_names_its_object(name in any_name()) {
        let law = law();
        let mut path = Vec::new();
        law.path(&name, &law.facts(&name), &mut path);
        prop_assert_eq!(law.parse(&path), Some(name));
        prop_assert_eq!(Law { tag: 1, ..law }.parse(&path), None);
    }

    #[test]
    fn any_path_can_be_read(path: Vec<u8>) {
        let _ = law().parse(&path);
    }

    #[test]
    fn versions_follow_one_another(seed: u64, now in 0u64..2_000_000_000, variance in 0.0f64..1.0) {
        let length = Distribution::Uniform(10.0, 100_000.0);
        let life = Life::Cycle { length, variance, with_modified: 1.0, expires_after: 0.0 };
        let version = life.version(seed, 0, now);
        if version.generation > 0 {
            prop_assert!(version.modified <= now);
            prop_assert!(now < version.replaced);
            prop_assert_eq!(life.version(seed, 0, version.replaced).modified, version.replaced);
        }
        prop_assert_eq!(life.replaced(seed, 0, version.generation), version.replaced);
    }
}

#[test]
fn sizes_and_cachability_are_as_declared() {
    let law = law();
    let name = |number| Name { server: 1, content: 0, world: World::Public { worker: 0 }, number, embedded: false };
    let facts: Vec<Facts> = (0..50_000).map(|number| law.facts(&name(number))).collect();
    let mean = facts.iter().map(|facts| facts.size as f64).sum::<f64>() / 50_000.0;
    let cachable = facts.iter().filter(|facts| facts.cachable).count() as f64 / 50_000.0;
    assert!((mean / 4608.0 - 1.0).abs() < 0.02, "{mean}");
    assert!((cachable - 0.8).abs() < 0.01, "{cachable}");
}

#[test]
fn a_page_always_embeds_the_same_objects() {
    let law = law();
    let page = Name { server: 1, content: 1, world: World::Public { worker: 0 }, number: 9, embedded: false };
    let children = law.embedded(&page, &law.facts(&page));
    assert!(!children.is_empty());
    assert_eq!(children, law.embedded(&page, &law.facts(&page)));
    assert!(children.iter().all(|child| child.embedded && child.content == 0 && child.server == 1));
}
