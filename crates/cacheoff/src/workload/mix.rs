//! The mix of replies that follows from what a workload declares: pages bring what they embed, and what they embed has
//! the marks of its page.

use super::{Content, Workload};
use crate::ledger::Kind;

/// Shares of the replies of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Of all replies, by content type.
    pub contents: Vec<f64>,
    /// Of the replies to basic requests, by content type.
    pub basic: Vec<f64>,
    /// Of all replies, those without a body: to HEAD, and 304.
    pub bodiless: f64,
    /// Of all replies, by the kind of their request; purges are left out.
    kinds: Vec<(Kind, f64)>,
}

/// A kind of request with its declared share, and what becomes of it.
#[derive(Clone, Copy)]
struct Declared {
    kind: Kind,
    share: f64,
    /// Whether only objects with a tag can be asked for in this way.
    tagged: bool,
    /// Whether the answer leads to what the page embeds.
    brings: bool,
    /// Whether what the page embeds is asked for in the same way.
    marks: bool,
    /// Whether the answer has a body.
    body: bool,
}

impl Mix {
    /// The share of a kind.
    pub fn of(&self, kind: Kind) -> f64 {
        self.kinds.iter().filter(|(each, _)| *each == kind).map(|(_, share)| share).sum()
    }
}

impl Workload {
    /// The mix in a phase whose factor on requests that are not basic is `special`.
    pub fn mix(&self, special: f64) -> Mix {
        let none = vec![0.0; self.contents.len()];
        let mut sums = Sums { all: none.clone(), basic: none, bodiless: 0.0, kinds: Vec::new() };
        for (number, share) in self.direct_shares().into_iter().enumerate() {
            let mut rest = share;
            for declared in self.kinds() {
                let part = share * declared.share * special * declared.possible(&self.contents[number]);
                rest -= part;
                self.add(number, part, &declared, &mut sums);
            }
            self.add(number, rest, &Declared { brings: true, ..Declared::plain(Kind::Basic, 1.0) }, &mut sums);
        }
        let total: f64 = sums.all.iter().sum::<f64>().max(1e-12);
        let kinds = sums.kinds.into_iter().map(|(kind, sum)| (kind, sum / total)).collect();
        let bodiless = sums.bodiless / total;
        Mix { contents: super::normal(sums.all), basic: super::normal(sums.basic), bodiless, kinds }
    }

    fn kinds(&self) -> [Declared; 8] {
        let (requests, known) = (&self.requests, self.robots.embeds_of_304);
        let marks = |kind, share| Declared { brings: true, marks: true, ..Declared::plain(kind, share) };
        let unchanged = |share| Declared { brings: known, body: false, ..marks(Kind::Validation, share) };
        let upload = |share| Declared { brings: true, ..Declared::plain(Kind::Upload, share) };
        [
            marks(Kind::Validation, requests.ims_200),
            unchanged(requests.ims_304),
            Declared { tagged: true, ..unchanged(requests.if_none_match) },
            marks(Kind::Reload, requests.reload),
            Declared { body: false, ..Declared::plain(Kind::Head, requests.head) },
            Declared::plain(Kind::Range, requests.range),
            upload(requests.post),
            upload(requests.put),
        ]
    }

    /// Adds requests of a kind for pages of a type, and those for what they embed.
    fn add(&self, content: usize, share: f64, declared: &Declared, sums: &mut Sums) {
        sums.add(content, share, declared.kind, declared.body);
        let Some(embeds) = self.contents[content].embeds.as_ref().filter(|_| declared.brings) else { return };
        let total: f64 = embeds.contents.iter().map(|(_, part)| part).sum();
        for (number, part) in &embeds.contents {
            let number = usize::from(*number);
            let children = share * embeds.count.mean() * self.robots.embed_recurrence * part / total;
            let marked = if declared.marks { children * declared.possible(&self.contents[number]) } else { 0.0 };
            sums.add(number, marked, declared.kind, declared.body);
            sums.add(number, children - marked, Kind::Basic, true);
        }
    }
}

impl Declared {
    /// A kind that leads nowhere.
    fn plain(kind: Kind, share: f64) -> Self {
        Self { kind, share, tagged: false, brings: false, marks: false, body: true }
    }

    /// The share of the objects of a type that can be asked for in this way.
    fn possible(&self, content: &Content) -> f64 {
        match (self.tagged, content.etag) {
            (false, _) => 1.0,
            (true, true) => content.cachable,
            (true, false) => 0.0,
        }
    }
}

struct Sums {
    all: Vec<f64>,
    basic: Vec<f64>,
    bodiless: f64,
    kinds: Vec<(Kind, f64)>,
}

impl Sums {
    fn add(&mut self, content: usize, share: f64, kind: Kind, body: bool) {
        self.all[content] += share;
        self.bodiless += if body { 0.0 } else { share };
        if kind == Kind::Basic {
            self.basic[content] += share;
        }
        match self.kinds.iter_mut().find(|(each, _)| *each == kind) {
            Some((_, sum)) => *sum += share,
            None => self.kinds.push((kind, share)),
        }
    }
}
