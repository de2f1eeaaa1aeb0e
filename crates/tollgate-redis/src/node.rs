//! One node of the engine: its address, and the connection to it.
//!
//! Invariant: one connection at a time. It is opened by whoever needs it, greeted, and given the
//! script; who could not open one is not followed at once by all others that wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::commit::{Fault, SCRIPT};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::connection::Connection;
use crate::replicas::{Lent, Pool};
use crate::resp::Value;
use crate::tls::Tls;
use crate::warning::field;

/// What every connection begins with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeting {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    /// What it is spoken over, if it is.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Cut when nothing was answered for so long.
    pub(crate) stall: Duration,
}

/// After a connection could not be opened the next try is so much later.
const PAUSE: Duration = Duration::from_millis(20);

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    /// `host:port`.
    pub(crate) address: String,
    greeting: Greeting,
    ready: RwLock<Option<Arc<Ready>>>,
    opening: tokio::sync::Mutex<()>,
    /// When it last came to have keys that another node had, among all connections.
    inherited: AtomicU64,
    tried_at: Mutex<Option<Instant>>,
}

/// A connection that was greeted.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) connection: Connection,
    /// What the engine calls the script.
    pub(crate) script: Vec<u8>,
    /// Which connection it is, of all that there ever were.
    number: u64,
    /// What commits go by that replicas must have.
    pool: Pool,
}

/// How many connections there were, and how often a node came to have what others had before.
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

    /// The connection, opened if there is none.
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

    /// It has keys from now on that another node had, perhaps with more written to them.
    pub(crate) fn inherits(&self) {
        self.inherited.store(next_number(), Ordering::Relaxed);
    }

    /// What is known of the node by `ready` holds as long as this number.
    pub(crate) fn number_of(&self, ready: &Ready) -> u64 {
        ready.number.max(self.inherited.load(Ordering::Relaxed))
    }

    fn open(&self) -> Option<Arc<Ready>> {
        let ready = self.ready.read().unwrap_or_else(PoisonError::into_inner);
        ready.as_ref().filter(|ready| !ready.connection.is_closed()).cloned()
    }

    /// A connection for one commit that replicas must have, to the process that `ready` is to:
    /// what is known by that one holds for no other.
    pub(crate) async fn lend<'r>(&self, ready: &'r Ready) -> Result<Lent<'r>, Fault> {
        let open = async {
            let known = ready.pool.run_id.get_or_try_init(|| run_id(&ready.connection)).await?;
            let connection = self.greeted().await?;
            if run_id(&connection).await? == *known {
                return Ok(connection);
            }
            let mut stands = self.ready.write().unwrap_or_else(PoisonError::into_inner);
            stands.take_if(|stands| stands.number == ready.number);
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

    /// A connection that may ask.
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

/// What the process calls itself that a connection is to.
async fn run_id(connection: &Connection) -> Result<Vec<u8>, Fault> {
    let info = done(connection.ask(&[b"INFO", b"server"]).await)?;
    let info = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
    field(&info, "run_id").map(|id| id.trim().into()).ok_or(Fault::Nonsense)
}

/// A connection to `address`, without a word.
pub(crate) async fn connect(address: &str, greeting: &Greeting) -> Result<Connection, Fault> {
    let Greeting { tls, stall, .. } = greeting;
    let stream = TcpStream::connect(address).await.map_err(|_| Fault::Unreachable)?;
    stream.set_nodelay(true).ok();
    let Some(tls) = tls else { return Ok(Connection::new(stream, *stall)) };
    // Who does not speak TLS may wait for more of what he takes to be a command.
    let stream = timeout(*stall, tls.handshake(address, stream)).await;
    Ok(Connection::new(stream.unwrap_or(Err(Fault::Unreachable))?, *stall))
}

/// Nothing that follows was sent yet, whatever went wrong.
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
