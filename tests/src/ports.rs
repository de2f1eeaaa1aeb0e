//! Ports of the loopback interface that no other process takes.
//!
//! Invariant: a port is given out once during the life of this process; other programs of this
//! project see its locked file. The ports are below the range from which the kernel gives ports to
//! connections: thousands of short connections cannot take one before its server does. xtask has
//! this file, too.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;

/// A port on which no process listens.
///
/// # Errors
///
/// When all are taken, or a file in the temporary folder cannot be written.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = std::process::id().wrapping_mul(97).wrapping_add(step);
        let port = u16::try_from(FIRST + number % COUNT).map_err(Error::other)?;
        if is_claimed(port)? && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::new(ErrorKind::AddrInUse, "no port is free"))
}

/// Whether `port` belongs to this process from now until it ends.
fn is_claimed(port: u16) -> Result<bool> {
    static CLAIMS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let dir = std::env::temp_dir().join("tollgate-ports");
    fs::create_dir_all(&dir)?;
    let claim = File::create(dir.join(port.to_string()))?;
    let is_mine = claim.try_lock().is_ok();
    if is_mine {
        CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
    }
    Ok(is_mine)
}
