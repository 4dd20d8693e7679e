//! Connections of other nodes of the cluster: nothing of them is answered before it is proved, so they never come to the quick path.

use super::{after, begin_body, refuse};
use crate::exchange::of_node;
use crate::exchange::stream::ClientStream;
use crate::h1::Connection;
use crate::h1::render::Next;

/// Serves a connection at the address for nodes to its end.
pub async fn serve_node(mut connection: Box<Connection>) {
    loop {
        let request = match connection.next_request().await {
            Ok(request) => *request.head,
            // Boxed, as all that is rare.
            Err(end) => return Box::pin(refuse(connection, &end)).await,
        };
        let record = connection.space.env.begin_guarded(&request, &connection.peer);
        begin_body(&mut connection, &request);
        let ended = Box::pin(of_node::answer(&mut *connection, request, record)).await;
        match after(&mut connection, ended).await {
            Next::Continue if connection.flush_if_full().await.is_ok() => {}
            Next::Close => return connection.close().await,
            Next::Continue | Next::Cut => return,
        }
    }
}
