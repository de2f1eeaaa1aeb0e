//! TLS to the engine: one node, a node that sentinels name and nodes that a cluster names; an
//! unauthenticated peer decides nothing. Also logins.
//!
//! Guards: a limiter that trusts any process that listens on the address of its engine.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use tollgate_e2e::process::{READY_WITHIN, TempDir, free_port, wait_until};
use tollgate_redis::{Failed, Fault, KeyRequest, Tls, TlsFiles};

use crate::fleet_engine_redis::{Kind, Redis};
use crate::{ask_all, is_charged, request, runtime, server};

/// Certificates of one test, in a folder.
struct Certificates {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    /// An authority, `ca.pem`, and the certificates that it issues: `node` of this machine and
    /// `client`.
    fn new() -> Self {
        let dir = TempDir::new("engine-tls");
        let mut params = CertificateParams::new(vec![]).expect("no names");
        // A certificate with the name of its issuer is considered self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("signed");
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).expect("written");
        let certificates = Self { dir, authority };
        certificates.issue("node", &["127.0.0.1", "localhost"], 2090);
        certificates.issue("client", &["client"], 2090);
        certificates
    }

    /// Writes `name.pem` and `name.key`, for these hosts, valid until that year.
    fn issue(&self, name: &str, hosts: &[&str], until: i32) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.authority).expect("signed");
        let write = |end: &str, pem: String| {
            std::fs::write(self.dir.path().join(format!("{name}.{end}")), pem).expect("written");
        };
        write("pem", certificate.pem());
        write("key", key.serialize_pem());
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_string_lossy().into_owned()
    }

    /// Settings of a Redis that presents `name` on `port`, and requires a certificate of clients,
    /// too.
    fn settings(&self, name: &str, port: u16) -> Vec<[String; 2]> {
        [
            ("tls-port", port.to_string()),
            ("tls-cert-file", self.path(&format!("{name}.pem"))),
            ("tls-key-file", self.path(&format!("{name}.key"))),
            ("tls-ca-cert-file", self.path("ca.pem")),
        ]
        .map(|(setting, value)| [setting.to_owned(), value])
        .to_vec()
    }

    fn start(&self, kind: Kind, name: &str, more: &[&str]) -> (Redis, u16) {
        let port = free_port();
        let mut arguments: Vec<String> = Vec::new();
        for [setting, value] in self.settings(name, port) {
            arguments.extend([format!("--{setting}"), value]);
        }
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        (Redis::start_with(kind, &arguments, None), port)
    }

    /// The files of a server: the authority that it trusts, and its own identity.
    fn files(&self, client: Option<&str>) -> TlsFiles {
        let identity = client.map(|name| {
            (self.path(&format!("{name}.pem")).into(), self.path(&format!("{name}.key")).into())
        });
        TlsFiles { ca: self.path("ca.pem").into(), identity, server_name: None }
    }

    fn tls(&self) -> Arc<Tls> {
        open(self.files(Some("client")))
    }
}

fn open(files: TlsFiles) -> Arc<Tls> {
    Arc::new(Tls::open(files).expect("right files"))
}

/// The result of one request: whether it was charged.
fn ask(address: &str, tls: &Arc<Tls>) -> Result<bool, Failed> {
    runtime().block_on(async {
        let server = server(address, |options| options.tls = Some(tls.clone()));
        let answer = server.ask(server.name(b"key"), KeyRequest::Check(request(1))).await;
        assert_eq!(server.under_way(), 0);
        answer.map(|reply| is_charged(&reply))
    })
}

const UNTRUSTED: Result<bool, Failed> = Err(Failed::Engine(Fault::Tls));

#[test]
fn an_engine_over_tls_decides_and_who_is_not_trusted_does_not() {
    let ours = Certificates::new();
    ours.issue("expired", &["127.0.0.1"], 2020);
    ours.issue("stranger", &["redis.example"], 2090);
    let (redis, port) = ours.start(Kind::Plain, "node", &[]);
    let address = format!("rediss://127.0.0.1:{port}");
    assert_eq!(ask(&address, &ours.tls()), Ok(true));
    assert_eq!(ask(&address, &ours.tls()), Ok(false), "the same count");
    assert_eq!(
        ask(&format!("rediss://localhost:{port}"), &ours.tls()),
        Ok(false),
        "its other name"
    );

    // No trusted authority has issued its certificate.
    let others = Certificates::new();
    let wrong = TlsFiles { ca: others.path("ca.pem").into(), ..ours.files(Some("client")) };
    assert_eq!(ask(&address, &open(wrong)), UNTRUSTED);
    // The client presents no certificate, or one of another authority.
    let mistaken = |files: TlsFiles| {
        let answer = ask(&address, &open(files));
        // The node cuts the connection at once after it has sent the reason.
        let is_refused =
            matches!(answer, Err(Failed::Engine(Fault::Tls | Fault::Unreachable | Fault::Cut)));
        assert!(is_refused, "{answer:?}");
    };
    mistaken(ours.files(None));
    mistaken(TlsFiles { identity: others.files(Some("client")).identity, ..ours.files(None) });
    // A port without TLS, and TLS where none is expected.
    let plain = format!("rediss://127.0.0.1:{}", redis.port);
    assert!(matches!(
        ask(&plain, &ours.tls()),
        Err(Failed::Engine(Fault::Tls | Fault::Unreachable))
    ));
    let answer = runtime().block_on(async {
        let server = server(&format!("redis://127.0.0.1:{port}"), |_| {});
        server.ask(server.name(b"key"), KeyRequest::Check(request(1))).await
    });
    assert!(matches!(answer, Err(Failed::Engine(_))), "{answer:?}");
    // Another name, unless that name is expected.
    let (_redis, port) = ours.start(Kind::Plain, "stranger", &[]);
    let address = format!("rediss://127.0.0.1:{port}");
    assert_eq!(ask(&address, &ours.tls()), UNTRUSTED);
    let named =
        |name: &str| TlsFiles { server_name: Some(name.to_owned()), ..ours.files(Some("client")) };
    assert_eq!(ask(&address, &open(named("redis.example"))), Ok(true));
    assert_eq!(ask(&address, &open(named("redis.example.net"))), UNTRUSTED);
    // An expired certificate.
    let (_redis, port) = ours.start(Kind::Plain, "expired", &[]);
    assert_eq!(ask(&format!("rediss://127.0.0.1:{port}"), &ours.tls()), UNTRUSTED);
}

#[test]
fn files_are_read_again_and_bad_ones_replace_nothing() {
    let ours = Certificates::new();
    let (mut redis, port) = ours.start(Kind::Plain, "node", &[]);
    let right = std::fs::read(ours.path("ca.pem")).expect("read");
    let other = std::fs::read(Certificates::new().path("ca.pem")).expect("read");
    let write = |bytes: &[u8]| std::fs::write(ours.path("ca.pem"), bytes).expect("written");
    write(&other);
    let tls = ours.tls();
    let runtime = runtime();
    runtime.block_on(async {
        let address = format!("rediss://127.0.0.1:{port}");
        let server = server(&address, |options| options.tls = Some(tls.clone()));
        let ask = || server.ask(server.name(b"key"), KeyRequest::Check(request(9)));
        assert_eq!(ask().await, Err(Failed::Engine(Fault::Tls)));
        write(b"no certificate");
        let bad = server.reload_tls().expect_err("a bad file");
        assert_eq!((bad.len(), bad[0].what), (1, "ca"));
        write(&right);
        assert_eq!(server.reload_tls(), Ok(true));
        wait_until_charged(&ask).await;
        // An open connection stays; the next one is not trusted any more.
        write(&other);
        assert_eq!(server.reload_tls(), Ok(true));
        assert!(is_charged(&ask().await.expect("the same connection")));
    });
    write(&right);
    redis.restart();
    write(&other);
    assert_eq!(ask(&format!("rediss://127.0.0.1:{port}"), &ours.tls()), UNTRUSTED);
}

/// Sends requests until one is charged: after a failure it pauses and tries again.
async fn wait_until_charged<F>(ask: &impl Fn() -> F)
where
    F: Future<Output = Result<Vec<u8>, Failed>>,
{
    for _ in 0..1_000 {
        if ask().await.is_ok_and(|reply| is_charged(&reply)) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("never charged");
}

#[test]
fn much_at_once_goes_through_tls_whole() {
    let ours = Certificates::new();
    let (_redis, port) = ours.start(Kind::Plain, "node", &[]);
    runtime().block_on(async {
        let tls = ours.tls();
        let of = || {
            let address = format!("rediss://127.0.0.1:{port}");
            server(&address, |options| options.tls = Some(tls.clone()))
        };
        let name = |server: &tollgate_redis::Engine, client: usize, i: usize| {
            server.name(format!("{client} {i}").as_bytes())
        };
        let sum = ask_all(&[of(), of()], 64, 100, name).await;
        assert_eq!(sum.get(), [6_400, 0, 0, 0]);
    });
}

#[test]
fn a_primary_that_a_sentinel_names_is_spoken_to_over_tls() {
    let ours = Certificates::new();
    let (_redis, port) = ours.start(Kind::Plain, "node", &["--tls-replication", "yes"]);
    let listens = free_port();
    let mut more = String::from("tls-replication yes\n");
    for [setting, value] in ours.settings("node", listens) {
        more.push_str(&format!("{setting} {value}\n"));
    }
    let _sentinel = Redis::sentinel_with("main", port, &more);
    let address = format!("rediss+sentinel://127.0.0.1:{listens}/main");
    runtime().block_on(async {
        let server = server(&address, |options| options.tls = Some(ours.tls()));
        assert_eq!(server.greet().await, Ok(vec![]));
        let reply = server.ask(server.name(b"key"), KeyRequest::Check(request(1))).await;
        assert!(is_charged(&reply.expect("an answer")));
    });
    let others = Certificates::new();
    let wrong = TlsFiles { ca: others.path("ca.pem").into(), ..ours.files(Some("client")) };
    let greeted = runtime().block_on(async {
        server(&address, |options| options.tls = Some(open(wrong.clone()))).greet().await
    });
    assert_eq!(greeted, Err(Fault::Tls), "a sentinel is to be trusted, too");
}

#[test]
fn nodes_that_a_cluster_names_are_spoken_to_over_tls() {
    let ours = Certificates::new();
    let nodes: Vec<(Redis, u16)> =
        (0..2).map(|_| ours.start(Kind::Cluster, "node", &["--tls-cluster", "yes"])).collect();
    for (i, (node, _)) in nodes.iter().enumerate() {
        let range = [["0", "8191"], ["8192", "16383"]][i];
        assert_eq!(node.command(&["CLUSTER", "ADDSLOTSRANGE", range[0], range[1]]), "+OK");
        let epoch = (i + 1).to_string();
        assert_eq!(node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), "+OK");
    }
    let (first, port) = &nodes[0];
    nodes[1].0.meet_at(&port.to_string(), &first.bus_port.to_string());
    wait_until("the cluster is whole", READY_WITHIN, || {
        let is_whole = |(node, _): &(Redis, u16)| {
            let info = node.command(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
        };
        nodes.iter().all(is_whole).then_some(())
    });
    runtime().block_on(async {
        let tls = ours.tls();
        let address = format!("rediss+cluster://127.0.0.1:{port}");
        let server = server(&address, |options| options.tls = Some(tls.clone()));
        server.greet().await.expect("it is there");
        let name = |server: &tollgate_redis::Engine, client: usize, i: usize| {
            server.name(format!("{client} {i}").as_bytes())
        };
        assert_eq!(ask_all(&[server], 4, 50, name).await.get(), [200, 0, 0, 0]);
    });
    for (node, _) in &nodes {
        assert_ne!(node.command(&["DBSIZE"]), ":0", "every node has some");
    }
}

// The commands are those that docs/server.md names.
#[test]
fn a_user_logs_in_with_no_more_rights_than_the_documents_say() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/server.md");
    let docs = std::fs::read_to_string(docs).expect("read");
    let rights = docs.lines().find_map(|line| line.strip_prefix("ACL SETUSER tollgate "));
    let rights = rights.expect("docs/server.md says which rights").replace("...", "secret");
    let redis = Redis::start(Kind::Plain);
    let mut command = vec!["ACL", "SETUSER", "tollgate"];
    command.extend(rights.split(' '));
    assert_eq!(redis.command(&command), "+OK");
    assert_eq!(redis.command(&["ACL", "SETUSER", "reader", "on", ">secret", "~*", "+get"]), "+OK");
    let address = |login: &str| format!("redis://{login}@127.0.0.1:{}", redis.port);
    runtime().block_on(async {
        let right = server(&address("tollgate:secret"), |_| {});
        assert_eq!(right.greet().await, Ok(vec![]));
        let reply = right.ask(right.name(b"key"), KeyRequest::Check(request(1))).await;
        assert!(is_charged(&reply.expect("an answer")));
        assert_eq!(right.append("rules", 0, b"entry").await, Ok(true));
        assert_eq!(right.length("rules").await, Ok(1));
        assert_eq!(right.entries("rules", 0).await, Ok(vec![b"entry".to_vec()]));
        for login in ["tollgate:wrong", "nobody:secret", "reader:secret"] {
            let server = server(&address(login), |_| {});
            let answer = server.ask(server.name(b"key"), KeyRequest::Check(request(1))).await;
            assert_eq!(answer, Err(Failed::Engine(Fault::Forbidden)), "{login}");
        }
    });
}
