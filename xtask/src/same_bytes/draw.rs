//! Draws of requests from a seed: the same seed draws the same requests and objects for ever, so the
//! generator is our own and short.

/// A stream of draws (SplitMix64).
pub struct Draw(u64);

impl Draw {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// True in `percent` of 100 draws.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Log-uniform from 0 to `max`: as many between 1 KB and 10 KB as between 100 KB and 1 MB.
    pub fn size(&mut self, max: usize) -> usize {
        let share = (self.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        ((((max + 1) as f64).ln() * share).exp() - 1.0).round() as usize
    }

    /// Bytes that compress a little, as real ones do.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 16);
        while bytes.len() < len {
            let word = self.bits();
            bytes.extend_from_slice(&word.to_le_bytes());
            bytes.extend_from_slice(b"        ");
        }
        bytes.truncate(len);
        bytes
    }
}

/// Sizes as the issue of a comparison states them.
pub const BODY_BYTES_MAX: usize = 5_000_000;
const UPLOAD_BYTES_MAX: usize = 500_000;

/// How an origin ends a body towards a client that speaks HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Content-Length.
    Length,
    /// Chunks of a drawn size.
    Chunked,
    /// The end of the connection.
    Close,
}

/// An object of the generated origin: a function of the seed and its number, so the origin keeps no state.
#[derive(Clone, Debug)]
pub struct Object {
    /// Bytes without coding.
    pub len: usize,
    /// How the origin ends the body.
    pub framing: Framing,
    /// Whether there is a gzip variant.
    pub has_gzip: bool,
    /// `None` says nothing.
    pub cache_control: Option<&'static str>,
    /// Whether a validator comes along.
    pub has_etag: bool,
    /// Status of the answer.
    pub status: u16,
    content: u64,
}

impl Object {
    /// The object of a number.
    pub fn of(seed: u64, number: u64) -> Object {
        let mut draw = Draw::new(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        Object {
            len: draw.size(BODY_BYTES_MAX),
            framing: draw.pick(&[Framing::Length, Framing::Length, Framing::Chunked, Framing::Chunked, Framing::Close]),
            has_gzip: draw.chance(40),
            cache_control: draw.pick(&[
                Some("max-age=3600"),
                Some("max-age=3600"),
                Some("no-store"),
                Some("no-cache"),
                None,
            ]),
            has_etag: draw.chance(50),
            status: draw.pick(&[200, 200, 200, 200, 200, 200, 200, 404, 410, 301]),
            content: draw.bits(),
        }
    }

    /// The bytes without coding.
    pub fn body(&self) -> Vec<u8> {
        Draw::new(self.content).bytes(self.len)
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A client of the forward proxy, the generated origin behind it.
    Forward,
    /// The reverse proxy of the generated origin.
    Reverse,
    /// A client of the forward proxy, nginx with files and gzip behind it.
    Nginx,
    /// Squid between the client and the forward proxy.
    SquidBefore,
    /// Squid between the reverse proxy and the generated origin.
    SquidBehind,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 5] = [Way::Forward, Way::Reverse, Way::Nginx, Way::SquidBefore, Way::SquidBehind];

    /// The words in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Way::Forward => "forward",
            Way::Reverse => "reverse",
            Way::Nginx => "nginx behind",
            Way::SquidBefore => "squid before",
            Way::SquidBehind => "squid behind",
        }
    }

    /// Whether a client on this way asks in absolute form.
    pub fn is_forward(self) -> bool {
        !matches!(self, Way::Reverse | Way::SquidBehind)
    }
}

/// A request that is played with and without Larder.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where it goes.
    pub way: Way,
    /// GET, HEAD or POST.
    pub method: &'static str,
    /// Path at the origin.
    pub path: String,
    /// Whether it is HTTP/1.1.
    pub is_http11: bool,
    /// Whether the connection is to be used again.
    pub keeps: bool,
    /// Accept-Encoding, when there is one.
    pub accepts: Option<&'static str>,
    upload: Option<Upload>,
}

#[derive(Clone, Debug)]
struct Upload {
    body: Vec<u8>,
    is_chunked: bool,
}

impl Request {
    /// Draws a request over `objects` objects on one of `ways`; `files` are those that nginx has.
    pub fn draw(draw: &mut Draw, ways: &[Way], objects: u64, files: u64) -> Request {
        let way = draw.pick(ways);
        let is_http11 = draw.chance(75);
        let mut request = Request {
            way,
            method: if draw.chance(6) { "HEAD" } else { "GET" },
            path: match way {
                Way::Nginx => format!("/{}.{}", draw.below(files), draw.pick(&["txt", "bin"])),
                _ => format!("/object/{}", draw.below(objects)),
            },
            is_http11,
            keeps: draw.chance(70),
            accepts: draw.pick(&[None, Some("gzip"), Some("gzip, deflate"), Some("identity")]),
            upload: None,
        };
        if way != Way::Nginx && draw.chance(8) {
            let len = draw.size(UPLOAD_BYTES_MAX);
            request.method = "POST";
            request.path = "/echo".into();
            request.upload = Some(Upload { body: draw.bytes(len), is_chunked: is_http11 && draw.chance(50) });
        }
        request
    }

    /// The bytes on the wire; `authority` is the origin's, in absolute form when a proxy is asked.
    pub fn bytes(&self, authority: &str, is_absolute: bool) -> Vec<u8> {
        let prefix = if is_absolute { format!("http://{authority}") } else { String::new() };
        let version = if self.is_http11 { "1.1" } else { "1.0" };
        let mut head = format!("{} {prefix}{} HTTP/{version}\r\nHost: {authority}\r\n", self.method, self.path);
        match (self.is_http11, self.keeps) {
            (true, false) => head.push_str("Connection: close\r\n"),
            (false, true) => head.push_str("Connection: keep-alive\r\n"),
            _ => {}
        }
        if let Some(accepts) = self.accepts {
            head.push_str(&format!("Accept-Encoding: {accepts}\r\n"));
        }
        let Some(upload) = &self.upload else { return (head + "\r\n").into_bytes() };
        if !upload.is_chunked {
            head.push_str(&format!("Content-Length: {}\r\n\r\n", upload.body.len()));
            return [head.as_bytes(), &upload.body].concat();
        }
        head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        [head.into_bytes(), chunked(&upload.body, 7_001)].concat()
    }
}

/// A body in chunks of `size` bytes, its end included.
pub fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + body.len() / size * 8 + 16);
    for part in body.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_for_ever() {
        // The published values of SplitMix64 for this seed.
        let mut draw = Draw::new(1_234_567);
        assert_eq!([draw.bits(), draw.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn sizes_reach_from_nothing_to_the_maximum() {
        let mut draw = Draw::new(1);
        let sizes: Vec<usize> = (0..4000).map(|_| draw.size(BODY_BYTES_MAX)).collect();
        assert!(sizes.contains(&0) && sizes.iter().all(|size| *size <= BODY_BYTES_MAX));
        assert!(sizes.iter().any(|size| *size > BODY_BYTES_MAX / 2));
        let small = sizes.iter().filter(|size| **size < 1000).count();
        assert!((1400..2200).contains(&small), "{small} of 4000 below 1000");
    }

    #[test]
    fn chunks_end_a_body() {
        assert_eq!(chunked(b"abcd", 3), b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
    }
}
