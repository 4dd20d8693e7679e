//! Which requests are sampled, and their places in a trace (W3C Trace Context). Spans of them are made and sent by `trace`.

mod context;
mod draws;
mod ids;

pub use context::{Flag, Parent, SpanContext, TRACEPARENT, TRACESTATE};
pub use draws::Draws;
pub use ids::{SpanId, TraceId};

use larder_wire::{Fields, RequestHead};

/// The place of a request that is sampled, and whether its sender's place could be read.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// The place in the trace.
    pub place: SpanContext,
    parent_was_valid: bool,
}

impl Sampled {
    /// Samples a request as its sender says, or else by this share of all.
    pub fn begin(request: &RequestHead, share: f64, draws: &Draws) -> Option<Box<Sampled>> {
        let parent = Parent::of(&request.fields);
        let sampled = match parent {
            Some(parent) => parent.flag == Flag::Sampled,
            None => draws.is_among(share),
        };
        sampled
            .then(|| Box::new(Sampled { place: SpanContext::begin(parent, draws), parent_was_valid: parent.is_some() }))
    }

    /// The place of a fetch for this request.
    pub fn fetch(&mut self) -> Sampled {
        Sampled { place: self.place.child(), parent_was_valid: self.parent_was_valid }
    }

    /// Writes the place into the fields of a request to an origin.
    pub fn write_to(&self, fields: &mut Fields) {
        self.place.tell(fields, self.parent_was_valid);
    }
}
