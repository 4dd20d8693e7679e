//! The form of a login page: its body is read, and answered by the rules.

use super::deliver;
use super::stream::ClientStream;
use crate::page::Page;
use crate::request_body::{Piece, RequestBody};
use crate::rules::{FORM_BYTES_MAX, SentForm, unreadable_form};

/// The answer to a form.
pub async fn page<S: ClientStream>(stream: &mut S, form: &SentForm, body: RequestBody) -> Page {
    let mut read = Vec::new();
    if body != RequestBody::None {
        // Earlier answers of the connection do not wait for the check of a password.
        let _ = stream.flush().await;
        loop {
            match stream.next_body_piece().await {
                Ok(Piece::Data(data)) => read.extend_from_slice(&data),
                Ok(Piece::End(_)) => break,
                Err(end) => return deliver::page_for_body(&end),
            }
            if read.len() > FORM_BYTES_MAX {
                return unreadable_form();
            }
        }
    }
    form.answer(stream.env(), stream.peer(), &read).await
}
