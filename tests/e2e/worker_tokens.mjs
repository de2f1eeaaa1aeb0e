// Keys and tokens for worker_jwt.rs, made by Node's crypto: `node worker_tokens.mjs <seconds since 1970>`.
//
// One line out: {"keys": JSON Web Keys for the policy, "good": {name: token}, "bad": {name: token}, "other": a token of
// another user}. This file decides by RFC 7515, 7519 and 8725 which tokens are good, not the Worker. Private
// keys are lost when this process ends.
import { createHmac, createSign, generateKeyPairSync, randomBytes, sign } from "node:crypto";

const now = Number(process.argv[2]);
const secret = randomBytes(32);
const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const ec = generateKeyPairSync("ec", { namedCurve: "P-256" });
const otherRsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const otherEc = generateKeyPairSync("ec", { namedCurve: "P-256" });

const hmac = (key) => (data) => createHmac("sha256", key).update(data).digest();
const rs256 = (key) => (data) => createSign("RSA-SHA256").update(data).sign(key);
const es256 = (key) => (data) => sign("sha256", Buffer.from(data), { key, dsaEncoding: "ieee-p1363" });
const signers = { HS256: hmac(secret), RS256: rs256(rsa.privateKey), ES256: es256(ec.privateKey) };
const kids = { HS256: "shared", RS256: "rsa", ES256: "ec" };

const base64url = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");
const claims = { sub: "bob", iss: "https://issuer.example", aud: ["other", "tollgate"], exp: now + 600, nbf: now - 600 };

/** A token by `alg`; `change` replaces claims, `header` members of the header, `by` the signer. */
function token(alg, { change = {}, header = {}, by = signers[alg], payload } = {}) {
  const body = payload ?? base64url({ ...claims, ...change });
  const signed = `${base64url({ typ: "JWT", alg, kid: kids[alg], ...header })}.${body}`;
  return `${signed}.${by(signed).toString("base64url")}`;
}

/** `text` with the first character of its part `i` changed. */
function flipped(text, i) {
  const parts = text.split(".");
  const middle = Math.floor(parts[i].length / 2);
  const other = parts[i][middle] === "A" ? "B" : "A";
  parts[i] = parts[i].slice(0, middle) + other + parts[i].slice(middle + 1);
  return parts.join(".");
}

const jwk = (alg, pair) => ({ ...pair.publicKey.export({ format: "jwk" }), alg, kid: kids[alg] });
const keys = [
  { kty: "oct", alg: "HS256", kid: kids.HS256, k: secret.toString("base64url") },
  jwk("RS256", rsa),
  jwk("ES256", ec),
];

const good = {
  "HS256": token("HS256"),
  "RS256": token("RS256"),
  "ES256": token("ES256"),
  "no kid": token("RS256", { header: { kid: undefined } }),
  "aud is text": token("ES256", { change: { aud: "tollgate" } }),
  "no time": token("HS256", { change: { exp: undefined, nbf: undefined } }),
  "expired within the leeway": token("HS256", { change: { exp: now - 20 } }),
  "valid soon, within the leeway": token("HS256", { change: { nbf: now + 20 } }),
};

const pem = rsa.publicKey.export({ type: "spki", format: "pem" });
const der = rsa.publicKey.export({ type: "spki", format: "der" });
const none = `${base64url({ typ: "JWT", alg: "none" })}.${base64url(claims)}.`;
const nobody = () => Buffer.alloc(0);
const bad = {
  // Forged.
  "HS256, other secret": token("HS256", { by: hmac(randomBytes(32)) }),
  "HS256, empty secret": token("HS256", { by: hmac("") }),
  "RS256, other key": token("RS256", { by: rs256(otherRsa.privateKey) }),
  "ES256, other key": token("ES256", { by: es256(otherEc.privateKey) }),
  "ES256, all zeros": token("ES256", { by: () => Buffer.alloc(64) }), // CVE-2022-21449
  "ES256, DER": token("ES256", { by: (data) => sign("sha256", Buffer.from(data), ec.privateKey) }),
  "HS256, claims changed": flipped(token("HS256"), 1),
  "RS256, claims changed": flipped(token("RS256"), 1),
  "ES256, claims changed": flipped(token("ES256"), 1),
  "RS256, signature changed": flipped(token("RS256"), 2),
  "HS256, no signature": token("HS256", { by: nobody }),
  "RS256, no signature": token("RS256", { by: nobody }),
  "HS256, half a signature": token("HS256", { by: (data) => signers.HS256(data).subarray(0, 16) }),
  // The algorithm is the key's, not the token's.
  "alg none": none,
  "alg None": none.replace(/^[^.]*/, base64url({ typ: "JWT", alg: "None" })),
  "alg none, signed": token("none", { by: signers.HS256 }),
  "alg none, kid of a key": token("none", { header: { kid: "shared" }, by: nobody }),
  "alg missing": token("HS256", { header: { alg: undefined } }),
  "alg a list": token("HS256", { header: { alg: ["HS256"] } }),
  "alg __proto__": token("HS256", { header: { alg: "__proto__" } }),
  "HS256 signed with the RSA public key, PEM": token("HS256", { header: { kid: "rsa" }, by: hmac(pem) }),
  "HS256 signed with the RSA public key, DER": token("HS256", { header: { kid: "rsa" }, by: hmac(der) }),
  "HS256 signed with the RSA modulus": token("HS256", { header: { kid: undefined }, by: hmac(keys[1].n) }),
  "HS384": token("HS384", { header: { kid: "shared" }, by: (d) => createHmac("sha384", secret).update(d).digest() }),
  "RS256 by the EC key's name": token("RS256", { header: { kid: "ec" } }),
  "a key in the token": token("ES256", {
    header: { kid: undefined, jwk: otherEc.publicKey.export({ format: "jwk" }) },
    by: es256(otherEc.privateKey),
  }),
  "unknown kid": token("RS256", { header: { kid: "rotated" } }),
  "kid a path": token("HS256", { header: { kid: "../../dev/null" }, by: hmac("") }),
  // Valid, but not now and not here.
  "expired": token("HS256", { change: { exp: now - 120 } }),
  "not yet valid": token("HS256", { change: { nbf: now + 180 } }),
  "exp no number": token("HS256", { change: { exp: "never" } }),
  "exp a text of digits": token("HS256", { change: { exp: String(now + 600) } }),
  "exp null": token("HS256", { change: { exp: null } }),
  "nbf no number": token("HS256", { change: { nbf: [] } }),
  "wrong issuer": token("RS256", { change: { iss: "https://issuer.example.evil" } }),
  "no issuer": token("RS256", { change: { iss: undefined } }),
  "wrong audience": token("ES256", { change: { aud: ["tollgate2", "other"] } }),
  "no audience": token("ES256", { change: { aud: undefined } }),
  "crit": token("HS256", { header: { crit: ["exp"] } }),
  "crit unknown": token("HS256", { header: { crit: ["b64"], b64: false } }),
  "crit null": token("HS256", { header: { crit: null } }),
  // No token.
  "empty": "",
  "dots": "..",
  "words": "not a token",
  "four parts": `${token("HS256")}.x`,
  "two parts": token("HS256").split(".").slice(0, 2).join("."),
  "two tokens": `${token("HS256")}, Bearer ${token("RS256")}`,
  "not base64url": token("HS256").replace(".", "=."),
  "header no JSON": `${base64url("x")}.${base64url(claims)}.AAAA`,
  "header null": `${base64url("null")}.${base64url(claims)}.AAAA`,
  "claims no JSON": token("HS256", { payload: base64url("{") }),
  "claims null": token("HS256", { payload: base64url("null") }),
  "claims a text": token("HS256", { payload: base64url('"bob"') }),
  "claims a list": token("HS256", { payload: base64url(JSON.stringify([{ sub: "bob" }])) }),
  "too long": token("HS256", { change: { pad: "x".repeat(17 * 1024) } }),
  // Verified, but the claim in the key is absent or has a type that cannot be a key.
  "no sub": token("HS256", { change: { sub: undefined } }),
  "sub an object": token("HS256", { change: { sub: { name: "bob" } } }),
  "sub null": token("HS256", { change: { sub: null } }),
};
const other = token("HS256", { change: { sub: "alice" } });
console.log(JSON.stringify({ keys, good, bad, other }));
