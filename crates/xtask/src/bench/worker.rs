//! The Worker in plain workerd: CPU per request in both of its uses, beside Workers that decide
//! nothing.
//!
//! Invariant: every server gets the same requests of one client and the same workerd configuration;
//! what runs in it differs. An admission is written to disk before it is answered, so that is
//! measured, too. Says nothing about the platform's own servers, where storage is replicated
//! elsewhere.

use super::{
    cpu::{Seat, seated},
    effort::Effort,
    envoy,
    load::{self, Expect, Subject},
    wrk::Requests,
};
use crate::{
    problem::{OrProblem, Problem, Result},
    servers::{
        Server, free_port,
        workerd::{self, Code, Options, Storage},
    },
    workspace::Workspace,
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

/// Rows that others are compared with.
const NOOP: usize = 0;
const FORWARDER: usize = 4;

const HEALTH: &str = "/.well-known/tollgate/health";
/// What the service is asked.
const CHECK: &str =
    r#"{"method":"GET","host":"a.example","path":"/","headers":{},"client_ip":"192.0.2.1"}"#;
/// Reads the question and answers as much as the service does.
const NOOP_SCRIPT: &str = r#"
const answer = JSON.stringify({ decision: "allow", rules: [], violated: [], retry_after_ms: null,
  headers: { "ratelimit-policy": "\"bench\";q=1000000;w=1", ratelimit: "\"bench\";r=999999;t=1" } });
export class Limiter {}
export default {
  async fetch(request) {
    await request.text();
    return new Response(answer, { headers: { "content-type": "application/json" } });
  },
};
"#;
/// Forwards to the origin and adds two fields.
const FORWARDER_SCRIPT: &str = r#"
export class Limiter {}
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const answer = await fetch(env.ORIGIN + url.pathname + url.search, request);
    const response = new Response(answer.body, answer);
    response.headers.set("ratelimit-policy", "\"bench\";q=1000000;w=1");
    response.headers.set("ratelimit", "\"bench\";r=999999;t=1");
    return response;
  },
};
"#;

/// Which of the two uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Service,
    Proxy,
}

/// One row of the table.
struct Variant {
    /// Names its folder.
    folder: &'static str,
    label: &'static str,
    code: Code,
    storage: Storage,
    used: Use,
    expect: Expect,
}

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    let origin = envoy::plain(workspace, "bench-origin")?;
    let script = write_script(workspace)?;
    let variants = variants();
    let names: Vec<&str> = variants.iter().map(|variant| variant.label).collect();
    let subjects = variants.into_iter().map(|variant| start(workspace, variant, &origin, &script));
    let subjects = subjects.collect::<Result<Vec<Subject>>>()?;
    let costs = load::measure("worker", &subjects, effort)?;
    let bases = [("x no-op", NOOP), ("x forwarder", FORWARDER)];
    let mut table = load::table("Worker: one request to workerd", &names, &costs, &bases);
    table.note(
        "workerd alone, wrk with 16 keep-alive connections, one client, so one object; an admission is \
         on disk before it is answered. `check`: the service, `POST /check`. `proxy`: in front of an \
         origin that is not counted; a denied request does not reach it. Every figure is the median of \
         the rounds; what is added and the ratios are taken within a round.",
    );
    Ok(table.markdown())
}

fn variants() -> [Variant; 7] {
    use Expect::{Passed, Refused};
    let storage = Storage::Disk;
    let row =
        |folder, label, code, used, expect| Variant { folder, label, code, storage, used, expect };
    let in_memory = |row| Variant { storage: Storage::Memory, ..row };
    let plenty = || Code::WithPolicy(policy(1_000_000, "1s"));
    let one = || Code::WithPolicy(policy(1, "1d"));
    let memory = "check: Tollgate, allowed, storage in memory";
    let noop = "check: no-op in JavaScript";
    let forwarder = "proxy: forwarder in JavaScript";
    [
        row("bench-noop", noop, Code::Script(NOOP_SCRIPT), Use::Service, Passed),
        row("bench-check", "check: Tollgate, allowed", plenty(), Use::Service, Passed),
        in_memory(row("bench-check-memory", memory, plenty(), Use::Service, Passed)),
        row("bench-check-denied", "check: Tollgate, denied", one(), Use::Service, Refused),
        row("bench-forwarder", forwarder, Code::Script(FORWARDER_SCRIPT), Use::Proxy, Passed),
        row("bench-proxy", "proxy: Tollgate, allowed", plenty(), Use::Proxy, Passed),
        row("bench-proxy-denied", "proxy: Tollgate, denied", one(), Use::Proxy, Refused),
    ]
}

fn policy(limit: u64, window: &str) -> String {
    let quota = json!({"limit": limit, "window": window, "algorithm": "gcra"});
    json!({"version": 1, "rules": [{"name": "bench", "key": ["client_ip"], "quotas": [quota]}]})
        .to_string()
}

fn start(ws: &Workspace, variant: Variant, origin: &Server, script: &Path) -> Result<Subject> {
    let port = free_port()?;
    let mut vars = BTreeMap::new();
    let is_ours = !matches!(variant.code, Code::Script(_));
    if variant.used == Use::Proxy {
        vars.insert("ORIGIN".to_owned(), format!("http://127.0.0.1:{}", origin.port));
    }
    let ready = if is_ours { HEALTH } else { "/" };
    let Variant { folder: name, code, storage, .. } = variant;
    let options = Options { name, port, vars, code, storage, ready };
    let server = seated(Seat::Server, || workerd::start(ws, options))?;
    let client = vec!["cf-connecting-ip: 192.0.2.1"];
    let (requests, mut expect) = match variant.used {
        Use::Proxy => (Requests { path: "/", headers: client, script: None }, variant.expect),
        Use::Service => {
            let script = Some(script.to_owned());
            (Requests { path: "/check", headers: Vec::new(), script }, variant.expect)
        }
    };
    if variant.used == Use::Service {
        see_decision(port, variant.expect)?;
        // The service answers 200 whatever it decided.
        expect = Expect::Passed;
    }
    Ok(Subject { name: variant.label, server, requests, expect })
}

/// The second answer in a row must be what the row of the table says.
fn see_decision(port: u16, expect: Expect) -> Result<()> {
    let wanted = match expect {
        Expect::Passed => r#""decision":"allow""#,
        Expect::Refused => r#""decision":"deny""#,
    };
    let fix = "see whether POST /check still answers as the README says";
    post(port).or_problem("the Worker does not answer", fix)?;
    let answer = post(port).or_problem("the Worker does not answer", fix)?;
    match answer.contains(wanted) {
        true => Ok(()),
        false => Err(Problem::new(format!("the answer lacks {wanted}"), answer, fix)),
    }
}

fn post(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let length = CHECK.len();
    write!(
        stream,
        "POST /check HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{CHECK}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What wrk sends to the service.
fn write_script(workspace: &Workspace) -> Result<PathBuf> {
    let fix = "free disk space";
    let file = workspace.out.join("run/bench-check.lua");
    fs::create_dir_all(workspace.out.join("run")).or_problem("cannot create a folder", fix)?;
    let script = format!(
        "wrk.method = 'POST'\nwrk.headers['content-type'] = 'application/json'\nwrk.body = '{CHECK}'\n"
    );
    fs::write(&file, script).or_problem("cannot write a script", fix)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_that_others_are_compared_with_are_where_they_should_be() {
        let rows = variants();
        assert!(matches!(rows[NOOP].code, Code::Script(NOOP_SCRIPT)));
        assert!(matches!(rows[FORWARDER].code, Code::Script(FORWARDER_SCRIPT)));
        let folders: std::collections::BTreeSet<_> = rows.iter().map(|row| row.folder).collect();
        assert_eq!(folders.len(), rows.len());
    }

    #[test]
    fn what_is_sent_fits_into_a_lua_string() {
        assert!(!CHECK.contains(['\'', '\\', '\n']));
        assert!(serde_json::from_str::<serde_json::Value>(CHECK).is_ok());
    }
}
