//! One node of the engine: its address, and the connection to it.
//!
//! Invariant: one connection at a time. The first caller that needs it opens it, sends the
//! greeting, and loads the script. After a failed attempt, the other waiting callers do not try
//! again at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::commit::{Fault, SCRIPT};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::connection::Connection;
use crate::info::field;
use crate::replicas::{LentConnection, Pool};
use crate::resp::Value;
use crate::tls::Tls;

/// The beginning of every connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeting {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    /// TLS, if it is used.
    pub(crate) tls: Option<Arc<Tls>>,
    /// A connection is cut after this time without a reply.
    pub(crate) stall: Duration,
}

/// The pause after a failed attempt to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    /// `host:port`.
    pub(crate) address: String,
    greeting: Greeting,
    ready: RwLock<Option<Arc<Ready>>>,
    opening: tokio::sync::Mutex<()>,
    /// The number of the last takeover of keys from another node, over all connections.
    inherited: AtomicU64,
    tried_at: Mutex<Option<Instant>>,
}

/// A connection that was greeted.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) connection: Connection,
    /// The engine's hash of the script.
    pub(crate) script: Vec<u8>,
    /// The number of the connection, unique over all connections.
    number: u64,
    /// The connections for commits that replicas must have.
    pool: Pool,
}

/// Counts connections, and takeovers of keys from other nodes.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

fn next_number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed).saturating_add(1)
}

impl Node {
    pub(crate) fn new(address: String, greeting: Greeting) -> Self {
        let (ready, opening) = (RwLock::new(None), tokio::sync::Mutex::new(()));
        let (inherited, tried_at) = (AtomicU64::new(0), Mutex::new(None));
        Self { address, greeting, ready, opening, inherited, tried_at }
    }

    /// The connection; opens one if there is none.
    pub(crate) async fn ready(&self) -> Result<Arc<Ready>, Fault> {
        if let Some(ready) = self.open() {
            return Ok(ready);
        }
        let _one_at_a_time = self.opening.lock().await;
        if let Some(ready) = self.open() {
            return Ok(ready);
        }
        let now = Instant::now();
        {
            let mut tried_at = self.tried_at.lock().unwrap_or_else(PoisonError::into_inner);
            if tried_at.is_some_and(|tried_at| now.duration_since(tried_at) < PAUSE) {
                return Err(Fault::Unreachable);
            }
            *tried_at = Some(now);
        }
        let ready = Arc::new(self.connect().await?);
        *self.ready.write().unwrap_or_else(PoisonError::into_inner) = Some(ready.clone());
        *self.tried_at.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(ready)
    }

    /// The node now has keys that another node had, perhaps with later writes.
    pub(crate) fn inherits(&self) {
        self.inherited.store(next_number(), Ordering::Relaxed);
    }

    /// The facts known about the node by `ready` hold while this number stays the same.
    pub(crate) fn number_of(&self, ready: &Ready) -> u64 {
        ready.number.max(self.inherited.load(Ordering::Relaxed))
    }

    fn open(&self) -> Option<Arc<Ready>> {
        let ready = self.ready.read().unwrap_or_else(PoisonError::into_inner);
        ready.as_ref().filter(|ready| !ready.connection.is_closed()).cloned()
    }

    /// A connection for one commit that replicas must have, to the same process as `ready`: the
    /// facts known by `ready` hold for no other process.
    pub(crate) async fn lend<'r>(&self, ready: &'r Ready) -> Result<LentConnection<'r>, Fault> {
        let open = async {
            let known = ready.pool.run_id.get_or_try_init(|| run_id(&ready.connection)).await?;
            let connection = self.greeted().await?;
            if run_id(&connection).await? == *known {
                return Ok(connection);
            }
            let mut stored = self.ready.write().unwrap_or_else(PoisonError::into_inner);
            stored.take_if(|stored| stored.number == ready.number);
            Err(Fault::Unreachable)
        };
        ready.pool.lend(open).await
    }

    async fn connect(&self) -> Result<Ready, Fault> {
        let connection = self.greeted().await?;
        let script = done(connection.ask(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()]).await)?;
        let script = script.bytes().unwrap_or_default().to_vec();
        let is_hash = script.len() == 40 && script.iter().all(u8::is_ascii_hexdigit);
        let (number, pool) = (next_number(), Pool::default());
        if is_hash { Ok(Ready { connection, script, number, pool }) } else { Err(Fault::Nonsense) }
    }

    /// Opens a connection that may send commands.
    async fn greeted(&self) -> Result<Connection, Fault> {
        let connection = connect(&self.address, &self.greeting).await?;
        let Greeting { user, password, database, .. } = &self.greeting;
        if let Some(password) = password {
            let password = password.as_bytes();
            match user {
                Some(user) => done(connection.ask(&[b"AUTH", user.as_bytes(), password]).await)?,
                None => done(connection.ask(&[b"AUTH", password]).await)?,
            };
        }
        if *database != 0 {
            let database = database.to_string();
            done(connection.ask(&[b"SELECT", database.as_bytes()]).await)?;
        }
        Ok(connection)
    }
}

/// The run id of the process at the other end of a connection.
async fn run_id(connection: &Connection) -> Result<Vec<u8>, Fault> {
    let info = done(connection.ask(&[b"INFO", b"server"]).await)?;
    let info = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
    field(&info, "run_id").map(|id| id.trim().into()).ok_or(Fault::Nonsense)
}

/// A connection to `address`, before any greeting.
pub(crate) async fn connect(address: &str, greeting: &Greeting) -> Result<Connection, Fault> {
    let Greeting { tls, stall, .. } = greeting;
    let stream = TcpStream::connect(address).await.map_err(|_| Fault::Unreachable)?;
    stream.set_nodelay(true).ok();
    let Some(tls) = tls else { return Ok(Connection::new(stream, *stall)) };
    // A server without TLS may wait for the rest of a supposed command.
    let stream = timeout(*stall, tls.handshake(address, stream)).await;
    Ok(Connection::new(stream.unwrap_or(Err(Fault::Unreachable))?, *stall))
}

/// No later command was sent yet, whatever the error was.
fn done(outcome: Result<Value, Fault>) -> Result<Value, Fault> {
    match outcome {
        Ok(Value::Error(line)) => Err(match &*line {
            [b'L' | b'B', ..] => Fault::Loading,
            [b'M', ..] => Fault::ClusterDown,
            [b'E', b'R', b'R', ..] => Fault::Error,
            _ => Fault::Forbidden,
        }),
        Ok(value) => Ok(value),
        Err(fault @ (Fault::Nonsense | Fault::Tls)) => Err(fault),
        Err(_) => Err(Fault::Unreachable),
    }
}
