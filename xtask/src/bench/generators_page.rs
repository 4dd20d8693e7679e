//! The page that compares two generators at the same caches: their figures, the ratio of them, and both rankings.

use super::report::{figure, machine, median, median_of, ratio, ratios};
use super::tool::{QUIET_CORES_MAX, Sample};
use crate::shell::{self, Trouble};
use std::fmt::Write;

/// Connections of `hammer`, and of wrk with it.
pub const CONNECTIONS: usize = 15;
/// The body of the objects of `hammer`.
pub const BODY_BYTES: usize = 600;
/// Two generators agree about a cache if the one says so much more or less than the other, or less than that.
const APART_MAX: f64 = 0.10;

/// Those that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// wrk, which fills the table.
    Wrk,
    /// The referee's.
    Hammer,
}

impl Generator {
    fn as_str(self) -> &'static str {
        match self {
            Generator::Wrk => "wrk",
            Generator::Hammer => "hammer",
        }
    }
}

/// Both generators at one process of a cache.
pub struct Met {
    /// Name and version.
    pub product: String,
    /// By wrk.
    pub wrk: Sample,
    /// By `hammer`.
    pub hammer: Sample,
}

/// A cache and what both said of it, in rounds; a round that failed is `None` for both.
pub struct Played {
    /// The name of its entry.
    pub name: &'static str,
    product: String,
    wrk: Vec<Option<Sample>>,
    hammer: Vec<Option<Sample>>,
    trouble: Option<Trouble>,
}

impl Played {
    /// Nothing yet.
    pub fn new(name: &'static str) -> Played {
        Played { name, product: String::new(), wrk: Vec::new(), hammer: Vec::new(), trouble: None }
    }

    /// A round of both.
    pub fn keep(&mut self, met: Met) {
        self.product = met.product;
        self.wrk.push(Some(met.wrk));
        self.hammer.push(Some(met.hammer));
    }

    /// A round that failed.
    pub fn miss(&mut self, trouble: Trouble) {
        self.wrk.push(None);
        self.hammer.push(None);
        self.trouble = Some(trouble);
    }

    /// The last round in words.
    pub fn said(&self) -> String {
        match (self.wrk.last(), self.hammer.last()) {
            (Some(Some(wrk)), Some(Some(hammer))) => {
                format!("{}: wrk {}, hammer {}", self.name, figure(wrk.cpu_micros), figure(hammer.cpu_micros))
            }
            _ => format!("{}: {}", self.name, self.trouble.as_deref().unwrap_or("nothing")),
        }
    }

    fn by(&self, generator: Generator) -> &[Option<Sample>] {
        match generator {
            Generator::Wrk => &self.wrk,
            Generator::Hammer => &self.hammer,
        }
    }

    fn micros(&self, generator: Generator) -> f64 {
        median_of(self.by(generator), |sample| sample.cpu_micros)
    }

    /// By `hammer` to by wrk.
    fn ratio(&self) -> f64 {
        ratio(&self.hammer, &self.wrk)
    }

    /// `None` if it was not measured.
    fn agrees(&self) -> Option<bool> {
        let ratio = self.ratio();
        (!ratio.is_nan()).then(|| (ratio - 1.0).abs() <= APART_MAX)
    }
}

/// The whole page.
pub fn page(rounds: usize, seconds: u64, all: &[Played]) -> String {
    let mut text = format!("# Two generators at the same caches\n\n{}\n\n", conditions(rounds, seconds));
    for played in all {
        let product = if played.product.is_empty() { "not measured" } else { &played.product };
        write!(text, "- {}: {product}", played.name).ok();
        if let Some(trouble) = &played.trouble {
            let failed = played.wrk.iter().filter(|sample| sample.is_none()).count();
            write!(text, "; {failed} rounds failed, the last one: {}", shell::last_lines(trouble, 1)).ok();
        }
        text.push('\n');
    }
    text.push_str(
        "\n## CPU per reply\n\n| cache | wrk µs | hammer µs | hammer to wrk | lowest | highest | within 10 % |\n",
    );
    text.push_str("|---|---:|---:|---:|---:|---:|---|\n");
    all.iter().for_each(|played| text.push_str(&compared(played)));
    writeln!(text, "\n{}\n\n{}", verdict(all), DIFFERENCES).ok();
    text.push_str("\n## By generator\n\n| cache | generator | µs | lowest | highest | replies/s | p99 ms | noise | rounds | errors |\n");
    text.push_str("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for played in all {
        for generator in [Generator::Wrk, Generator::Hammer] {
            text.push_str(&row(played.name, generator, played.by(generator)));
        }
    }
    text
}

fn conditions(rounds: usize, seconds: u64) -> String {
    format!(
        "`cargo xtask bench generators`: a memory hit of {BODY_BYTES} B over {CONNECTIONS} kept connections, by wrk and by `cacheoff \
         contest --workload hammer`. In each of {rounds} rounds each cache is started anew as its entry in `crates/cacheoff/entries/` \
         says, alone on core 0; `hammer` brings its objects into it; then wrk and `hammer` ask this one process, {seconds} s each, one \
         directly after the other, the other one first in the next round. wrk asks for an object of `hammer`'s, so that the replies are the same. Figures are CPU \
         time of all processes of the cache, user and kernel, per reply, in µs, medians. The ratio is that of a round, the median of \
         the rounds, with the lowest and the highest. Noise: cores that other processes and the hypervisor took; a run \
         above {QUIET_CORES_MAX} is repeated once, and left out where two quiet ones are left. {}.",
        machine(),
    )
}

const DIFFERENCES: &str = "The two differ in the request (wrk sends a request line and Host; a robot of `hammer` Accept and a field of its own too, \
some 40 B more), the objects (wrk asks for one, `hammer` for ten), the pace (a robot looks at each reply, byte for byte, before it asks \
again; wrk counts it, and is faster), and the clock (wrk's figures are what the scheduler counted, between its start and its end; \
`hammer`'s the ticks of all processes in its measured phase).";

fn compared(played: &Played) -> String {
    let all = ratios(&played.hammer, &played.wrk);
    let within = match played.agrees() {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "not measured",
    };
    let (wrk, hammer) = (played.micros(Generator::Wrk), played.micros(Generator::Hammer));
    let (lowest, highest) = bounds(all.iter().copied());
    let [ratio, lowest, highest] = [median(all), lowest, highest].map(figure);
    format!("| {} | {} | {} | {ratio} | {lowest} | {highest} | {within} |\n", played.name, figure(wrk), figure(hammer))
}

fn row(name: &str, generator: Generator, samples: &[Option<Sample>]) -> String {
    let all = || samples.iter().flatten();
    let (lowest, highest) = bounds(all().map(|sample| sample.cpu_micros));
    format!(
        "| {name} | {} | {} | {} | {} | {:.0} | {:.2} | {:.2} | {} of {} | {} |\n",
        generator.as_str(),
        figure(median_of(samples, |sample| sample.cpu_micros)),
        figure(lowest),
        figure(highest),
        median_of(samples, |sample| sample.rate),
        median_of(samples, |sample| sample.p99_millis),
        median_of(samples, |sample| sample.noise_cores),
        all().count(),
        samples.len(),
        all().map(|sample| sample.errors).sum::<u64>(),
    )
}

/// Of nothing: no numbers.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::NAN, f64::NAN), |(lowest, highest), value| (value.min(lowest), value.max(highest)))
}

/// Sentences: how many agree, and who is better than whom by either.
fn verdict(all: &[Played]) -> String {
    let measured: Vec<&Played> = all.iter().filter(|played| played.agrees().is_some()).collect();
    let within = measured.iter().filter(|played| played.agrees() == Some(true)).count();
    let [by_wrk, by_hammer] = [Generator::Wrk, Generator::Hammer].map(|generator| ranking(&measured, generator));
    let names = |order: &[&Played]| order.iter().map(|played| played.name).collect::<Vec<_>>().join(", ");
    let swaps = swaps(&by_wrk, &by_hammer);
    let same = if swaps.is_empty() { "the same".to_owned() } else { format!("**not the same**: {}", swaps.join("; ")) };
    let agree = within == all.len() && swaps.is_empty();
    format!(
        "Within 10 %: {within} of {}. Ranking by wrk: {}. By hammer: {}. The ranking is {same}. The generators {}.",
        all.len(),
        names(&by_wrk),
        names(&by_hammer),
        if agree { "agree" } else { "do **not** agree in all" },
    )
}

fn ranking<'p>(measured: &[&'p Played], generator: Generator) -> Vec<&'p Played> {
    let mut order = measured.to_vec();
    order.sort_by(|a, b| a.micros(generator).total_cmp(&b.micros(generator)));
    order
}

/// Pairs in another order, and how far apart they are by either: what is near each other may change places by chance.
fn swaps(by_wrk: &[&Played], by_hammer: &[&Played]) -> Vec<String> {
    let place = |played: &Played| by_hammer.iter().position(|other| other.name == played.name);
    let pairs =
        by_wrk.iter().enumerate().flat_map(|(at, first)| by_wrk[at + 1..].iter().map(move |second| (first, second)));
    let swapped = pairs.filter(|(first, second)| place(first) > place(second));
    let apart = |first: &Played, second: &Played, generator| ratio(second.by(generator), first.by(generator));
    let say = |(first, second): (&&Played, &&Played)| {
        let [wrk, hammer] = [Generator::Wrk, Generator::Hammer].map(|generator| apart(first, second, generator));
        format!("{} takes {wrk:.2} × {} by wrk, {hammer:.2} × by hammer", second.name, first.name)
    };
    swapped.map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu_micros: f64) -> Sample {
        Sample {
            cpu_micros,
            kernel_share: f64::NAN,
            rate: 1.0,
            p99_millis: 1.0,
            errors: 0,
            noise_cores: 0.0,
            origin_micros: f64::NAN,
        }
    }

    fn played(name: &'static str, wrk: &[f64], hammer: &[f64]) -> Played {
        let mut played = Played::new(name);
        for (wrk, hammer) in wrk.iter().zip(hammer) {
            played.keep(Met { product: name.to_owned(), wrk: sample(*wrk), hammer: sample(*hammer) });
        }
        played
    }

    #[test]
    fn ratios_are_of_rounds_and_say_whether_they_are_near() {
        // Twice as slow in the second round, for both.
        let near = played("near", &[10.0, 20.0, 10.0], &[10.5, 22.0, 9.0]);
        assert_eq!(compared(&near), "| near | 10.00 | 10.50 | 1.05 | 0.90 | 1.10 | yes |\n");
        let far = played("far", &[10.0, 10.0, 10.0], &[11.2, 11.1, 11.0]);
        assert_eq!(compared(&far), "| far | 10.00 | 11.10 | 1.11 | 1.10 | 1.12 | **no** |\n");
        assert_eq!(compared(&Played::new("none")), "| none | – | – | – | – | – | not measured |\n");
    }

    #[test]
    fn the_same_ranking_and_near_figures_are_agreement() {
        let all = [played("a", &[8.0], &[8.1]), played("b", &[16.0], &[16.4]), played("c", &[10.0], &[9.5])];
        assert_eq!(
            verdict(&all),
            "Within 10 %: 3 of 3. Ranking by wrk: a, c, b. By hammer: a, c, b. The ranking is the same. The generators agree."
        );
    }

    #[test]
    fn places_that_were_changed_are_named_with_their_distance() {
        let all = [played("a", &[8.0], &[8.0]), played("b", &[16.0], &[17.0]), played("c", &[16.16], &[16.15])];
        let said = verdict(&all);
        assert!(said.contains("**not the same**: c takes 1.01 × b by wrk, 0.95 × by hammer. "), "{said}");
        assert!(said.contains("Within 10 %: 3 of 3") && said.ends_with("do **not** agree in all."), "{said}");
    }

    #[test]
    fn a_cache_that_did_not_play_is_no_agreement_and_its_reason_is_told() {
        let mut absent = Played::new("b");
        absent.miss("first line\nb is not installed".to_owned());
        assert_eq!(absent.said(), "b: first line\nb is not installed");
        let text = page(1, 3, &[played("a", &[8.0], &[8.1]), absent]);
        assert!(
            text.contains("- a: a\n- b: not measured; 1 rounds failed, the last one: b is not installed\n"),
            "{text}"
        );
        assert!(text.contains("Within 10 %: 1 of 2") && text.contains("**not** agree"), "{text}");
        assert!(text.contains("| b | wrk | – |") && text.contains("| 0 of 1 | 0 |"), "{text}");
    }
}
