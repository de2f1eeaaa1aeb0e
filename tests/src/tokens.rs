//! Tokens with any claims, signed by Node's crypto, so that no code of this project signs the
//! tokens that it verifies.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::workerd::node_bin;

/// `0123456789abcdef0123456789abcdef`, the key of HS256.
pub const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY";

/// Signs every line of its input.
const SCRIPT: &str = r#"
const { createHmac } = require("node:crypto");
const base64url = (text) => Buffer.from(text).toString("base64url");
const key = Buffer.from(process.argv[1], "base64url");
for (const payload of require("node:fs").readFileSync(0, "utf8").split("\n")) {
  const signed = `${base64url('{"alg":"HS256","typ":"JWT"}')}.${base64url(payload)}`;
  console.log(`${signed}.${createHmac("sha256", key).update(signed).digest("base64url")}`);
}
"#;

/// One token for each of `payloads`, JSON on one line each.
pub fn signed(payloads: &[String]) -> Vec<String> {
    let mut command = Command::new(node_bin());
    command.args(["-e", SCRIPT, SECRET]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = command.spawn().expect("node");
    let input = node.stdin.take().expect("a pipe");
    { input }.write_all(payloads.join("\n").as_bytes()).expect("node reads");
    let output = node.wait_with_output().expect("node ends");
    let tokens = String::from_utf8(output.stdout).expect("text");
    let tokens: Vec<String> = tokens.lines().map(Into::into).collect();
    assert_eq!(tokens.len(), payloads.len(), "node failed");
    tokens
}
