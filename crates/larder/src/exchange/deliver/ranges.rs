//! Answers of parts of a body (RFC 9110 section 15.3.7).

use super::{Broke, Delivery, Ended, Source, break_off, instead, note_refusal, send_range};
use crate::exchange::stream::{AnswerBody, AnswerFields, AnswerHead, ClientStream};
use crate::record::Record;
use larder_wire::range::ContentRange;
use std::ops::Range;

/// Answers a request for these ranges of a body of so many bytes.
pub(super) async fn deliver_ranges<S: ClientStream>(
    stream: &mut S,
    delivery: Delivery<'_>,
    source: &mut Source,
    ranges: &[Range<u64>],
    length: u64,
    record: &mut Record,
) -> Ended {
    if let Some(failure) = ranges.iter().find_map(|range| source.reader.lost(range)) {
        return instead(stream, &delivery, &failure, record);
    }
    record.status = 206;
    let result = match ranges {
        [one] => {
            let content_range = ContentRange::of(one, Some(length)).to_string();
            begin_partial(stream, &delivery, ("Content-Range", &content_range), one.end - one.start);
            match note_refusal(stream, record) {
                true => Ok(()),
                false => send_range(stream, source, one.clone(), &mut None, record).await,
            }
        }
        several => deliver_parts(stream, &delivery, source, several, length, record).await,
    };
    match result {
        Ok(()) => {
            stream.end_answer(None);
            record.complete = true;
            Ended::Whole
        }
        Err(broke) => break_off(stream, broke, record).await,
    }
}

/// `multipart/byteranges` (RFC 9110 section 15.3.7.2).
async fn deliver_parts<S: ClientStream>(
    stream: &mut S,
    delivery: &Delivery<'_>,
    source: &mut Source,
    ranges: &[Range<u64>],
    length: u64,
    record: &mut Record,
) -> Result<(), Broke> {
    let boundary = stream.env().common.boundary();
    let content_type = delivery.stored.head.fields.get("Content-Type");
    let part_head = |range: &Range<u64>| {
        let mut head = format!("\r\n--{boundary}\r\n").into_bytes();
        if let Some(content_type) = content_type {
            head.extend_from_slice(b"Content-Type: ");
            head.extend_from_slice(content_type);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(format!("Content-Range: {}\r\n\r\n", ContentRange::of(range, Some(length))).as_bytes());
        head
    };
    let closing = format!("\r\n--{boundary}--\r\n");
    let heads: Vec<Vec<u8>> = ranges.iter().map(part_head).collect();
    let bodies: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let total = heads.iter().map(|head| head.len() as u64).sum::<u64>() + bodies + closing.len() as u64;
    let multipart = format!("multipart/byteranges; boundary={boundary}");
    begin_partial(stream, delivery, ("Content-Type", &multipart), total);
    if note_refusal(stream, record) {
        return Ok(());
    }
    for (head, range) in heads.iter().zip(ranges) {
        stream.send_copied(head);
        send_range(stream, source, range.clone(), &mut None, record).await?;
    }
    stream.send_copied(closing.as_bytes());
    Ok(())
}

/// Begins a 206: the fields of the whole response, and one that describes the part.
fn begin_partial<S: ClientStream>(stream: &mut S, delivery: &Delivery<'_>, says: (&str, &str), length: u64) {
    let mut fields = delivery.first().map_or(&delivery.stored.head.fields, |first| &first.fields).clone();
    // Those of the stored head are about all of the body (RFC 9530 section 2).
    ["Content-Digest", "Content-MD5"].iter().for_each(|name| _ = fields.remove(name));
    fields.set(says.0, says.1);
    stream.begin_answer(&AnswerHead {
        status: 206,
        fields: AnswerFields::Own(&fields),
        body: AnswerBody::Known(length),
        dynamic: delivery.dynamic(),
        is_last: false,
    });
}
