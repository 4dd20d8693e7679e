//! Clients that speak SOCKS 5 (`listen.socks`, docs/socks.md): each asks for one connection, which is served as a CONNECT is, but for its
//! answers. A user with a password becomes a login by Basic, about which the rules decide.

use crate::base64;
use crate::env::PeerFacts;
use crate::h1::serve::serve_tunnel;
use crate::h1::{Connection, Workspace};
use crate::permit::ConnectionPermit;
use crate::rehearse;
use crate::socket::Socket;
use crate::ticker::Wait;
use crate::wire::Wire;
use bytes::{Buf, BytesMut};
use larder_wire::RequestHead;
use larder_wire::socks::server::{Asked, Server, ServerFault, ServerStep};
use std::io;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Room for the longest message, and for the first bytes that a client sends behind its request.
const READ_BYTES: usize = 1_024;

/// Serves the connection of a client, of which these bytes were read.
pub fn begin(space: &Rc<Workspace>, peer: PeerFacts, (mut socket, read): (Socket, Vec<u8>), permit: ConnectionPermit) {
    let space = Rc::clone(space);
    tokio::task::spawn_local(async move {
        let env = Rc::clone(&space.env);
        let limit = env.config().timeouts.head;
        let mut inbox = BytesMut::from(read.as_slice());
        let why = match env.ticker.timer().limit(limit, Wait::Busy, negotiate(&mut socket, &mut inbox)).await {
            Ok(Ok(Ok(asked))) => match connect(&asked) {
                Ok(head) => {
                    let mut connection = Connection::new(space, peer, Wire::Client(socket), inbox);
                    connection.permit = Some(permit);
                    return serve_tunnel(connection, head).await;
                }
                Err(why) => why,
            },
            Ok(Ok(Err(fault))) => {
                // It is told where it can read that; more is not owed to it.
                let _ = socket.write_all(&fault.answer()).await;
                let _ = socket.shutdown().await;
                fault.to_string()
            }
            // It left, or only looked whether the port is open.
            Ok(Err(_)) => return,
            Err(_) => "its request was not whole in time".to_owned(),
        };
        env.tally.socks_refused.add(1);
        tracing::info!("a connection of {} to a listener of SOCKS was closed: {why}", peer.address);
        env.finish_unanswered(&peer.listener, peer.address, "socks");
    });
}

/// Answers the client's messages up to its request. Bytes behind that stay in the inbox.
async fn negotiate(socket: &mut Socket, inbox: &mut BytesMut) -> io::Result<Result<Asked, ServerFault>> {
    let mut server = Server::default();
    loop {
        match server.take(inbox) {
            Ok(ServerStep::Connect(used, asked)) => {
                inbox.advance(used);
                return Ok(Ok(asked));
            }
            Ok(ServerStep::Answer(used, answer)) => {
                inbox.advance(used);
                socket.write_all(&answer).await?;
            }
            Ok(ServerStep::Read) => {
                inbox.reserve(READ_BYTES);
                if socket.read_buf(inbox).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(fault) => return Ok(Err(fault)),
        }
    }
}

/// The CONNECT that such a request stands for.
fn connect(asked: &Asked) -> Result<RequestHead, String> {
    let mut head = rehearse::connect(&asked.host, asked.port)?;
    if let Some(login) = &asked.login {
        let text = [&login.user[..], b":", &login.password].concat();
        head.fields.push("Proxy-Authorization", format!("Basic {}", base64::encode(&text)));
    }
    Ok(head)
}
