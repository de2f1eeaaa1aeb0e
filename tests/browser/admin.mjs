// The admin page as the Worker serves it, in a real Chromium in front of a real workerd: `cargo xtask test browser` starts both.
//
// Invariant: every page of every test is watched: an error in its console (a breach of the content security policy is one), a
// request to any host but its own, and planted markup that ran fail the test, whatever it was about. What a page shows is
// compared with the API's responses to this script. Nothing asserts how long something took.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { run } from "./run.mjs";

const given = (name) => process.env[name] || assert.fail(`${name} is not set; run \`cargo xtask test browser\``);
const HOST = given("TOLLGATE_WORKER");
const BASE = `${HOST}/.well-known/tollgate/`;
const SITE = `${BASE}admin/`;
const [ADMIN, READ, METRICS, WHO] = ["ADMIN_TOKEN", "READ_TOKEN", "METRICS_TOKEN", "AUDIT_HEADER"].map(given);
const MODULES = given("TOLLGATE_PAGE_MODULES");
const PICTURES = given("TOLLGATE_PICTURES");
const PATIENCE = 60_000;
/** How long rates are plotted for a picture. */
const SECONDS = Number(process.env.TOLLGATE_PICTURE_SECONDS ?? 25);

const { chromium } = await import(path.join(MODULES, "playwright-core/index.mjs"));
const AXE = readFileSync(path.join(MODULES, "axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath: given("TOLLGATE_CHROMIUM"), args: ["--no-sandbox"] });

/** Markup that records when it runs. */
const HOSTILE = `<script>owned=1</script><img src=x onerror="owned=1">"'\`javascript:owned=1`;

/** Sends a request to the API directly, without the page. */
async function api(method, target, { body, who, match = "*", none, token = ADMIN } = {}) {
  const headers = { authorization: `Bearer ${token}` };
  if (!["GET", "HEAD"].includes(method)) Object.assign(headers, none ? { "if-none-match": "*" } : { "if-match": match });
  if (who) headers[WHO] = who;
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(`${BASE}${target}`, { method, headers, body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body) });
  const text = await response.text();
  return { status: response.status, text, headers: response.headers, json: text.startsWith("{") ? JSON.parse(text) : null };
}

const quota = (limit, window = "1h") => ({ name: "q", limit, window, algorithm: "fixed-window" });
const rule = (name, limit, more = {}) => ({ name, key: ["client_ip"], quotas: [quota(limit)], ...more });
const document = (...rules) => JSON.stringify({ version: 1, tenant: "host", rules }, null, 2);
const USUAL = document(rule("api", 5), rule("trial", 3, { mode: "shadow" }));

/** Puts a policy in force, and waits until requests are decided under it. */
async function inForce(text, who) {
  const put = await api("PUT", "admin/policy", { body: text, who });
  assert.equal(put.status, 200, put.text);
}

/** One decision. */
async function check(client, more = {}) {
  const body = JSON.stringify({ method: "GET", path: "/", host: "shop.example.com", client_ip: client, ...more });
  return (await fetch(`${HOST}/check`, { method: "POST", body })).json();
}

/** A page of its own, watched; `ended()` fails when something was wrong. `expected` are statuses that the browser logs. */
async function open({ width = 1280, height = 900, scheme = "light", hash = "", expected = [], storage } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce", timezoneId: "Europe/Berlin", ...storage });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const wrong = [];
  page.on("console", (message) => {
    // Between two texts the editor is empty, which is not JSON.
    const isExpected = [400, ...expected].some((status) => message.text().includes(`status of ${status}`));
    if (["error", "warning"].includes(message.type()) && !isExpected) wrong.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => wrong.push(`uncaught: ${error.stack ?? error}`));
  page.on("dialog", (dialog) => (wrong.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.origin !== HOST) wrong.push(`a request left the page: ${request.url()}`);
    if (request.url().includes(ADMIN) || request.headers().referer) wrong.push(`too much is told: ${request.url()}`);
  });
  await page.goto(`${SITE}${hash}`);
  const ended = async () => {
    assert.equal(await page.evaluate(() => globalThis.owned), undefined, "planted markup ran");
    await context.close();
    assert.deepEqual(wrong, []);
  };
  return { page, context, wrong, ended };
}

const byId = (page, id) => page.locator(`[data-testid="${id}"]`);

/** Signs in and shows a view. */
async function enter(page, view = "rates", token = ADMIN) {
  await byId(page, "token").fill(token);
  await byId(page, "enter").click();
  await byId(page, "nav-rates").waitFor();
  if (await byId(page, `nav-${view}`).count()) await byId(page, `nav-${view}`).click();
  await byId(page, view).waitFor();
}

/** The editor contains the whole typed text. */
async function type(page, text) {
  const content = page.locator('[data-testid="editor"] .cm-content');
  await content.waitFor();
  await content.click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.press("Delete");
  // As it is pasted: brackets are not closed for it.
  await content.evaluate((element, text) => {
    const data = new DataTransfer();
    data.setData("text/plain", text);
    element.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  }, text);
}

/** Shows the rates of a rule: what came after the page's first reading. */
async function withRates(page) {
  await byId(page, "figure-requests").waitFor();
  await check("192.0.2.5");
  await byId(page, "rule-rates").first().waitFor();
}

async function seen(locator, pattern) {
  await locator.filter({ hasText: pattern }).first().waitFor();
}

async function violations(page) {
  // The page lets no script be added; what looks at it comes by the debugger.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: AXE });
  const result = await session.send("Runtime.evaluate", { expression: "axe.run().then((r) => JSON.stringify(r.violations.map((v) => [v.id, v.impact, v.nodes.map((n) => n.html + ' ' + n.failureSummary)])))", awaitPromise: true, returnByValue: true });
  return JSON.parse(result.result.value);
}

const tests = {
  // Guards: a page that may load, send or be framed by what it should not; one that a cache keeps after a deployment.
  async "the page is sent with what it may do"() {
    const page = await fetch(SITE);
    const policy = page.headers.get("content-security-policy");
    for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]) {
      assert.ok(policy.includes(part), policy);
    }
    assert.ok(!policy.includes("unsafe"), policy);
    const field = (name) => page.headers.get(name);
    assert.deepEqual([field("cache-control"), field("x-content-type-options"), field("referrer-policy")], ["no-cache", "nosniff", "no-referrer"]);
    const text = await page.text();
    for (const [, name] of text.matchAll(/(?:src|href)="([\w-]+\.(?:js|css))"/g)) {
      const file = await fetch(`${SITE}${name}`);
      assert.equal(file.status, 200, name);
      assert.equal(file.headers.get("cache-control"), "public, max-age=31536000, immutable");
      assert.equal(file.headers.get("content-security-policy"), policy);
    }
    assert.ok(![ADMIN, READ, METRICS].some((secret) => text.includes(secret)));
    const folder = await fetch(SITE.slice(0, -1), { redirect: "manual" });
    assert.deepEqual([folder.status, folder.headers.get("location")], [308, "/.well-known/tollgate/admin/"]);
    for (const name of ["policy", "keys", "none", ".env", "index.html"]) {
      const answer = await fetch(`${SITE}${name}`);
      assert.ok(answer.headers.get("content-type").includes("problem+json"), `${name} is the API's`);
    }
  },

  // Guards: a page that shows data without a token, keeps a token where it should not, or does not report a wrong one.
  async "a token opens it, a wrong one does not"() {
    const { page, ended } = await open({ expected: [401] });
    assert.equal(await page.locator("nav").isVisible(), false);
    await byId(page, "token").fill("wrong");
    await page.keyboard.press("Enter");
    await seen(byId(page, "sign-in-said"), /Unauthorized/);
    assert.equal(await byId(page, "token").getAttribute("aria-invalid"), "true");
    await enter(page);
    await seen(byId(page, "role"), /reads and writes/);
    const kept = () => page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, globalThis.document.cookie]));
    assert.ok(!(await kept()).includes(ADMIN), "in memory only");
    await page.reload();
    await byId(page, "token").waitFor();
    await byId(page, "keep").check();
    await enter(page);
    await page.reload();
    await byId(page, "rates").waitFor();
    await byId(page, "sign-out").click();
    await byId(page, "token").waitFor();
    assert.ok(!(await kept()).includes(ADMIN), "signed out");
    assert.equal(await byId(page, "rates").count(), 0);
    await ended();
  },

  // Guards: buttons that cannot work; and a reader's token that is taken for a wrong one.
  async "a token that reads is offered nothing to write"() {
    await inForce(USUAL);
    const { page, ended } = await open({ expected: [403] });
    await enter(page, "history", READ);
    await seen(byId(page, "role"), /reads only/);
    await byId(page, "versions").waitFor();
    assert.equal(await page.getByRole("button", { name: /Roll back/ }).count(), 0);
    await byId(page, "nav-policy").click();
    await seen(byId(page, "policy"), /reads only/);
    await byId(page, "sign-out").click();
    await enter(page, "rates", METRICS);
    await seen(byId(page, "role"), /reads metrics/);
    assert.deepEqual(await page.locator("nav a").allInnerTexts(), ["Rates"]);
    await ended();
  },

  // Guards: mistakes that are not shown, shown elsewhere, or that can be put in force; a false diff or list of changes.
  async "a policy is checked as it is typed, compared and put in force"() {
    await inForce(USUAL);
    const { page, ended } = await open({ expected: [400, 422] });
    await enter(page, "policy");
    await seen(byId(page, "mistakes"), /As it is in force/);
    const bad = document(rule("api", 2e15), rule("trial", 3, { quotas: [quota(1, "1 day")] }));
    const lineOf = (part) => bad.slice(0, bad.indexOf(part)).split("\n").length;
    await type(page, bad);
    await seen(byId(page, "mistakes"), /2 mistakes/);
    const lines = await byId(page, "mistakes").locator("li").allTextContents();
    assert.ok(lines[0].startsWith(`line ${lineOf('"limit": 2000000000000000')} rules[0].quotas[0].limit 2000000000000000 is not valid`), lines[0]);
    assert.ok(lines[1].startsWith(`line ${lineOf('"1 day"')} rules[1].quotas[0].window`), lines[1]);
    assert.equal(await byId(page, "put").count(), 0, "a bad policy has no button");
    assert.ok((await page.locator('[data-testid="editor"] .cm-lintRange-error').count()) >= 2, "both are underlined");
    await type(page, USUAL.slice(0, -1));
    await seen(byId(page, "mistakes"), /Malformed|mistake/);
    assert.equal(await byId(page, "put").count(), 0);
    const next = document(rule("api", 7), rule("more", 100));
    await type(page, next);
    await byId(page, "put").waitFor();
    const dry = await api("PUT", "admin/policy?dry_run", { body: next });
    const counts = await byId(page, "counts").locator("tbody tr").allInnerTexts();
    assert.equal(counts.length, dry.json.changes.quotas.length);
    assert.ok(counts.some((row) => /api.*5 in 1 h.*7 in 1 h.*kept/s.test(row)), counts.join());
    assert.ok(counts.some((row) => /more.*begin fresh/s.test(row)) && counts.some((row) => /trial.*forgotten/s.test(row)), counts.join());
    const removed = await byId(page, "diff").locator(".line-removed .text").allInnerTexts();
    assert.ok(removed.some((line) => line.includes('"limit": 5')), removed.join());
    assert.equal((await api("GET", "admin/policy")).text, USUAL, "nothing was put yet");
    await byId(page, "put").click();
    await seen(byId(page, "policy-said"), /Version \d+ is in force/);
    assert.equal((await api("GET", "admin/policy")).text, next);
    await ended();
  },

  // Guards: one admin who overwrites another without seeing it.
  async "who was slower sees whose change was faster"() {
    await inForce(USUAL);
    const { page, ended } = await open({ expected: [412] });
    await enter(page, "policy");
    await type(page, document(rule("api", 8), rule("trial", 3, { mode: "shadow" })));
    await byId(page, "put").waitFor();
    const theirs = document(rule("api", 5), rule("trial", 3, { mode: "shadow" }), rule("theirs", 9));
    await inForce(theirs, "eve@example.com");
    await byId(page, "put").click();
    await seen(byId(page, "newer"), /eve@example\.com/);
    assert.equal((await api("GET", "admin/policy")).text, theirs, "nothing was overwritten");
    assert.ok((await byId(page, "newer").locator(".line-added").allInnerTexts()).join().includes("theirs"));
    await byId(page, "keep-mine").click();
    await byId(page, "put").waitFor();
    const removed = await byId(page, "diff").locator(".line-removed .text").allInnerTexts();
    assert.ok(removed.join().includes("theirs"), "what putting mine would take away is shown");
    // The check while typing meets it, too.
    await inForce(USUAL, "eve@example.com");
    await type(page, document(rule("api", 9)));
    await byId(page, "take-theirs").click();
    await seen(byId(page, "mistakes"), /As it is in force/);
    assert.equal((await api("GET", "admin/policy")).text, USUAL);
    await ended();
  },

  // Guards: a roll-back without a confirmation, or with another effect than announced.
  async "history shows who changed what and goes back"() {
    const first = document(rule("first", 1));
    await inForce(first, "ada@example.com");
    const { version } = (await api("GET", "admin/policy/history?limit=1")).json.versions[0];
    await inForce(USUAL, HOSTILE);
    const { page, ended } = await open();
    await enter(page, "history");
    await seen(byId(page, "versions"), /ada@example\.com/);
    const row = (await byId(page, "versions").locator("tbody tr").first().innerText());
    assert.ok(row.includes("<script>owned=1</script>"), row);
    await byId(page, `show-${version}`).click();
    await seen(byId(page, "version-text"), /"first"/);
    assert.equal(await byId(page, "version-text").textContent(), first);
    await byId(page, `back-${version}`).click();
    await byId(page, "dialog").waitFor();
    await seen(byId(page, "dialog"), /forgotten with the quota/);
    await page.keyboard.press("Escape");
    await byId(page, "dialog").waitFor({ state: "detached" });
    assert.equal((await api("GET", "admin/policy")).text, USUAL, "not before it is confirmed");
    await byId(page, `back-${version}`).click();
    await byId(page, "yes").click();
    await seen(byId(page, "history-said"), /is in force/);
    assert.equal((await api("GET", "admin/policy")).text, first);
    await byId(page, "give-back").click();
    await byId(page, "yes").click();
    await seen(byId(page, "versions"), /delete/);
    assert.equal((await api("GET", "admin/policy")).headers.get("tollgate-policy-source"), "deployed");
    await ended();
  },

  // Guards: markup in names, notes and entries that runs; an entry that replaces another; members that the form drops.
  async "tenants are written, found, paged and removed"() {
    await inForce(USUAL);
    const { page, ended } = await open({ expected: [404, 422] });
    await enter(page, "tenants");
    const id = "shop.example.com";
    await byId(page, "tenant-id").fill(id);
    await byId(page, "tenant-find").click();
    await byId(page, "tenant-form").waitFor();
    await byId(page, "tenant-note").fill(HOSTILE);
    await byId(page, "tenant-quotas").fill("{");
    await byId(page, "tenant-save").click();
    await seen(byId(page, "tenants-said"), /no JSON/);
    await byId(page, "tenant-quotas").fill('{"api": [{"name": "q", "limit": 2000000000000000, "window": "1h"}]}');
    await byId(page, "tenant-priority").fill("7");
    await byId(page, "tenant-save").click();
    await seen(byId(page, "tenants-said"), /limit must be/);
    await byId(page, "tenant-quotas").fill('{"api": [{"name": "q", "limit": 500, "window": "1h"}]}');
    await byId(page, "tenant-save").click();
    await seen(byId(page, "tenant-rows"), /<img src=x onerror=/);
    const entry = (await api("GET", `admin/tenants/${id}`)).json;
    assert.deepEqual([entry.note, entry.priority, entry.quotas.api[0].limit], [HOSTILE, 7, 500]);
    for (let i = 0; i < 60; i += 1) await api("PUT", `admin/tenants/t${String(i).padStart(3, "0")}.example.com`, { body: { note: `n${i}`, quotas: { api: [quota(50)] } }, none: true });
    await byId(page, "nav-rates").click();
    await byId(page, "nav-tenants").click();
    await byId(page, "next").click();
    await byId(page, "first").waitFor();
    assert.equal(await byId(page, "tenant-rows").locator("tbody tr").count(), 11);
    await byId(page, "tenant-id").fill(id);
    await byId(page, "tenant-find").click();
    await byId(page, "tenant-delete").click();
    await byId(page, "yes").click();
    await seen(byId(page, "tenants-said"), /Deleted/);
    assert.equal((await api("GET", `admin/tenants/${id}`)).status, 404);
    await ended();
  },

  // Guards: an operation on another key than the one shown, or one without effect.
  async "a key is looked at, blocked, freed and reset"() {
    await inForce(document(rule("api", 5), { name: "pair", key: ["client_ip", { header: "x-a" }], quotas: [quota(100)] }));
    const client = "192.0.2.31";
    await (async () => { for (let i = 0; i < 3; i += 1) await check(client); })();
    const { page, ended } = await open({ expected: [422, 400, 404] });
    await enter(page, "keys");
    await byId(page, "key-rule").fill("pair");
    await byId(page, "key-part-1").waitFor();
    await byId(page, "key-rule").fill("api");
    await byId(page, "key-part-1").waitFor({ state: "detached" });
    await byId(page, "key-part-0").fill(client);
    await byId(page, "key-look").click();
    await seen(byId(page, "key-words"), /3 of 5 used, 2 left/);
    await byId(page, "key-part-0").fill("192.0.2.99"); // the operation applies to the key that is shown
    await byId(page, "key-block").click();
    await seen(byId(page, "key-words"), /blocked for another/);
    assert.equal((await check(client)).decision, "deny");
    assert.notEqual((await check("192.0.2.99")).decision, "deny");
    await byId(page, "explain-client").fill(client);
    await byId(page, "explain").click();
    await seen(byId(page, "explained"), /It would be refused with 429/);
    await seen(byId(page, "explained"), /Blocked until \d{4}-/);
    await byId(page, "key-unblock").click();
    await seen(byId(page, "keys-said"), /block is over/);
    await byId(page, "key-reset").click();
    await byId(page, "yes").click();
    await seen(byId(page, "key-words"), /nothing is used|0 of 5 used/);
    await byId(page, "explain-client").fill(client);
    await byId(page, "explain-headers").fill(`x-a: ${"<b>".repeat(3)}`);
    await byId(page, "explain").click();
    await seen(byId(page, "explained"), /It would pass/);
    await seen(byId(page, "explained"), /pair allowed/);
    await byId(page, "key-rule").fill(HOSTILE);
    await byId(page, "key-look").click();
    await seen(byId(page, "keys-said"), /./);
    // The history of keys: each of the three, by the hash of the key.
    const { changes } = (await api("GET", "admin/keys/history?limit=3")).json;
    assert.deepEqual(changes.map((row) => row.act), ["reset", "unblock", "block"]);
    await byId(page, "nav-history").click();
    await seen(byId(page, "key-changes"), /unblock/);
    const rows = await byId(page, "key-changes").locator("tbody tr").allInnerTexts();
    for (const [i, { act, pk, before, after }] of changes.entries()) {
      // What was left of a block is shown as the time of its end.
      const shown = (words) => words.replace(/^blocked for another \d+ s/, "blocked until 2").split("; ");
      for (const part of [act, pk, ...shown(before), ...shown(after)]) assert.ok(rows[i].includes(part), `${part}: ${rows[i]}`);
      assert.ok(!rows[i].includes(client), rows[i]);
    }
    await ended();
  },

  // Guards: a block that does not apply to tenants with their own quotas; quotas that no document contains.
  async "a key of a tenant with quotas of its own is named with the tenant"() {
    await inForce(document(rule("api", 5), { name: "site", key: ["host"], quotas: [quota(500)] }));
    const [tenant, client] = ["own.example.com", "192.0.2.41"];
    const entry = { quotas: { api: [quota(9)] }, priority: 3 };
    assert.equal((await api("PUT", `admin/tenants/${tenant}`, { body: entry, match: null, none: true })).status, 201);
    const { page, ended } = await open();
    await enter(page, "keys");
    await byId(page, "key-rule").fill("site");
    await byId(page, "key-tenant").waitFor({ state: "hidden" });
    await byId(page, "key-rule").fill("api");
    await byId(page, "key-tenant").fill(tenant);
    await byId(page, "key-part-0").fill(client);
    await byId(page, "key-look").click();
    await seen(byId(page, "key-words"), /nothing is used/);
    await byId(page, "key-block").click();
    await seen(byId(page, "key-words"), /blocked for another/);
    assert.equal((await check(client, { host: tenant })).decision, "deny");
    assert.notEqual((await check(client)).decision, "deny", "of all others it is another count");
    await byId(page, "explain-client").fill("192.0.2.42");
    await byId(page, "explain-host").fill(tenant);
    await byId(page, "explain").click();
    await seen(byId(page, "explained"), /Quotas of its own, by the entry of its tenant \(priority 3\)/);
    await byId(page, "key-tenant").fill("");
    await byId(page, "key-look").click();
    await seen(byId(page, "key-words"), /1 of 5 used/);
    await byId(page, "key-block").click();
    await seen(byId(page, "key-words"), /blocked for another/);
    assert.equal((await check(client)).decision, "deny");
    await ended();
  },

  // Guards: a header that takes a third of a small screen, a table that is cut without a hint, and a form without fields for a key.
  async "a small screen has room for what it shows"() {
    await inForce(USUAL);
    await check("192.0.2.8");
    const { page, ended } = await open({ width: 360, height: 740 });
    await enter(page, "history");
    await byId(page, "versions").waitFor();
    const height = await page.evaluate(() => globalThis.document.querySelector("header.top").getBoundingClientRect().height);
    assert.ok(height <= 110, `${height} px`);
    const hint = await page.evaluate(() => getComputedStyle(globalThis.document.querySelector(".table-scroll")).backgroundImage);
    assert.ok(hint.includes("gradient"), hint);
    assert.match(await byId(page, "versions").locator("time").first().innerText(), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0[12]:00$/);
    await byId(page, "nav-keys").click();
    await byId(page, "key-part-0").waitFor();
    // The list of rules comes after the form.
    await page.waitForFunction(() => globalThis.document.querySelector('[data-testid="key-rule"]').value === "api");
    await ended();
  },

  // Guards: a lost click or focus, because the list of rules arrives after the user types.
  async "who is faster than the list of rules waits for it"() {
    await inForce(document(rule("only", 5)));
    await check("192.0.2.9");
    const { page, ended } = await open();
    await enter(page);
    let release;
    const held = new Promise((resolve) => { release = resolve; });
    await page.route("**/admin/policy", async (route) => (await held, route.continue()));
    await byId(page, "nav-keys").click();
    await byId(page, "key-part-0").click();
    await page.keyboard.type("192.0.2.9");
    await page.keyboard.press("Enter");
    // Without a wait of ours: the page has had its turn, and has asked for nothing.
    await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 100)));
    assert.equal(await byId(page, "key-words").count(), 0);
    release();
    await seen(byId(page, "key-words"), /1 of 5 used/);
    assert.equal(await byId(page, "key-part-0").inputValue(), "192.0.2.9");
    await byId(page, "key-rule").fill("");
    await byId(page, "key-look").click();
    await seen(byId(page, "keys-said"), /Say which rule/);
    assert.equal(await page.evaluate(() => globalThis.document.activeElement.dataset.testid), "key-rule");
    await ended();
  },

  // Guards: a list of rules that arrives while the user types, and removes typed letters.
  async "the list of rules takes no focus"() {
    await inForce(document(rule("only", 5)));
    const { page, ended } = await open();
    await enter(page);
    let release;
    const held = new Promise((resolve) => { release = resolve; });
    await page.route("**/admin/policy", async (route) => (await held, route.continue()));
    await byId(page, "nav-keys").click();
    await byId(page, "key-part-0").click();
    await page.keyboard.type("192.0");
    release();
    await page.getByLabel("client_ip").waitFor();
    await page.keyboard.type(".2.7");
    assert.equal(await byId(page, "key-part-0").inputValue(), "192.0.2.7");
    await ended();
  },

  // Guards: rates that are not those of the metrics; a shadow rule without a trace; a rule's name that runs.
  async "rates show what is refused and what would be"() {
    const hostile = "<script>owned=1</script>";
    await inForce(document(rule("api", 5), rule("trial", 3, { mode: "shadow" }), rule(hostile, 1_000)));
    const { page, ended } = await open();
    await enter(page);
    await byId(page, "figure-requests").waitFor();
    for (let i = 0; i < 12; i += 1) await check("192.0.2.77");
    const card = byId(page, "rule-rates");
    await seen(card, /trial/);
    await seen(card, hostile);
    await card.filter({ hasText: "trial" }).locator("canvas").waitFor();
    await page.waitForFunction(() => [...globalThis.document.querySelectorAll('[data-testid="rule-rates"]')].some((card) => card.querySelector("h3").textContent === "trial" && /[1-9]\d* in all/.test(card.querySelector('[data-testid="now-would"]').innerText)));
    const refused = await card.filter({ hasText: "api" }).first().locator('[data-testid="now-refused"]').innerText();
    assert.match(refused, /[1-9]\d* in all/);
    await card.filter({ hasText: "trial" }).locator("summary").click();
    assert.ok((await card.filter({ hasText: "trial" }).locator('[data-testid="rates-table"] tbody tr').count()) >= 1);
    await ended();
  },

  async "axe finds nothing, in both themes"() {
    await inForce(USUAL, "ada@example.com");
    await check("192.0.2.5");
    for (const scheme of ["light", "dark"]) {
      const { page, ended } = await open({ scheme, expected: [404, 422] });
      assert.deepEqual(await violations(page), [], `sign in, ${scheme}`);
      await enter(page);
      await withRates(page);
      assert.deepEqual(await violations(page), [], `rates, ${scheme}`);
      await byId(page, "nav-policy").click();
      await type(page, document(rule("api", 0)));
      await seen(byId(page, "mistakes"), /1 mistake/);
      assert.deepEqual(await violations(page), [], `mistakes, ${scheme}`);
      await type(page, document(rule("api", 9)));
      await byId(page, "put").waitFor();
      assert.deepEqual(await violations(page), [], `diff, ${scheme}`);
      await byId(page, "discard").click();
      assert.deepEqual(await violations(page), [], `dialog, ${scheme}`);
      await byId(page, "yes").click();
      await byId(page, "nav-tenants").click();
      await byId(page, "tenant-id").fill("a.example.com");
      await byId(page, "tenant-find").click();
      await byId(page, "tenant-form").waitFor();
      assert.deepEqual(await violations(page), [], `tenants, ${scheme}`);
      await byId(page, "nav-keys").click();
      await byId(page, "key-rule").fill("api");
      await byId(page, "key-part-0").fill("192.0.2.5");
      await byId(page, "key-look").click();
      await byId(page, "key-words").waitFor();
      assert.deepEqual(await violations(page), [], `keys, ${scheme}`);
      await byId(page, "nav-history").click();
      await byId(page, "versions").waitFor();
      assert.deepEqual(await violations(page), [], `history, ${scheme}`);
      await ended();
    }
  },

  async "360 pixels have no horizontal scroll"() {
    await inForce(document(rule("a-rule-with-a-name-that-is-as-long-as-names-may-be", 5)), "somebody-with-a-long-name@an-even-longer-host.example.com");
    await check("192.0.2.5");
    const { page, ended } = await open({ width: 360, height: 740, expected: [404] });
    const fits = async (what) => assert.ok((await page.evaluate(() => globalThis.document.documentElement.scrollWidth)) <= 360, what);
    await fits("sign in");
    await enter(page);
    await withRates(page);
    await fits("rates");
    await byId(page, "nav-policy").click();
    await type(page, document(rule("b".repeat(50), 9)));
    await byId(page, "put").waitFor();
    await fits("policy");
    await byId(page, "nav-tenants").click();
    await byId(page, "tenant-id").fill(`${"long".repeat(30)}.example.com`);
    await byId(page, "tenant-find").click();
    await byId(page, "tenant-form").waitFor();
    await fits("tenants");
    await byId(page, "nav-keys").click();
    await byId(page, "key-part-0").fill("192.0.2.5");
    await byId(page, "key-look").click();
    await byId(page, "key-words").waitFor();
    await fits("keys");
    await byId(page, "nav-history").click();
    await byId(page, "versions").waitFor();
    await fits("history");
    await ended();
  },

  // Guards: a control that needs a mouse, and a focus that is lost or trapped.
  async "by keyboard alone"() {
    await inForce(USUAL);
    const { page, ended } = await open();
    const focused = () => page.evaluate(() => {
      const element = globalThis.document.activeElement;
      // The editor lives in a shadow root, where it draws its own focus.
      const style = getComputedStyle(element.shadowRoot?.querySelector(".cm-focused") ?? element);
      return { id: element.dataset.testid ?? element.tagName.toLowerCase(), isSeen: style.outlineStyle !== "none" };
    });
    const tabTo = async (id, key = "Tab") => {
      for (let i = 0; i < 60; i += 1) {
        await page.keyboard.press(key);
        if ((await focused()).id === "editor") await page.waitForTimeout(200); // it draws its focus a little later
        const { id: now, isSeen } = await focused();
        assert.ok(isSeen || now === "body", `${now} has no visible focus`);
        if (now === id) return;
      }
      assert.fail(`${id} cannot be reached`);
    };
    assert.equal((await focused()).id, "token", "the first thing to do has the focus");
    await page.keyboard.type(ADMIN);
    await page.keyboard.press("Enter");
    await byId(page, "nav-rates").waitFor();
    await tabTo("nav-policy", "Shift+Tab");
    await page.keyboard.press("Enter");
    await seen(byId(page, "mistakes"), /As it is in force/);
    assert.equal((await focused()).id, "h2", "a view begins at its heading");
    await tabTo("editor");
    await page.keyboard.press("ControlOrMeta+Home");
    for (let i = 0; i < 4; i += 1) await page.keyboard.press("ArrowDown");
    await page.keyboard.press("End");
    await page.keyboard.press("ControlOrMeta+f").catch(() => {});
    await page.keyboard.press("Escape");
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.insertText(document(rule("keys", 6)));
    await byId(page, "put").waitFor();
    await page.keyboard.press("Escape"); // then Tab leaves the editor
    await tabTo("put");
    await page.keyboard.press("Enter");
    await seen(byId(page, "policy-said"), /is in force/);
    assert.equal(JSON.parse((await api("GET", "admin/policy")).text).rules[0].name, "keys");
    await page.evaluate(() => globalThis.scrollTo(0, 0));
    await tabTo("nav-history", "Shift+Tab");
    await page.keyboard.press("Enter");
    await byId(page, "versions").waitFor();
    const version = (await api("GET", "admin/policy/history?limit=2")).json.versions[1].version;
    await tabTo(`back-${version}`);
    await page.keyboard.press("Enter");
    await byId(page, "dialog").waitFor();
    assert.equal((await focused()).id, "no", "the dialog begins on what does nothing");
    await page.keyboard.press("Tab");
    assert.equal((await focused()).id, "yes");
    await page.keyboard.press("Enter");
    await seen(byId(page, "history-said"), /is in force/);
    assert.equal((await api("GET", "admin/policy")).text, USUAL);
    await ended();
  },

  // For people to look at. Those of the documents, docs/admin-light.png and -dark.png, are the rates and the history of a run with
  // TOLLGATE_ONLY=pictures and TOLLGATE_PICTURE_SECONDS=60, the one above the other and in 128 colours.
  async "pictures in both themes and widths"() {
    mkdirSync(PICTURES, { recursive: true });
    const gcra = (name, limit, window) => ({ name, limit, window, algorithm: "gcra" });
    const text = (limit, more = []) => document(rule("api", 0, { quotas: [gcra("steady", limit, "10s")] }), rule("login", 0, { quotas: [gcra("tries", 30, "1m")], mode: "shadow" }), ...more);
    await inForce(text(25), "ada@example.com");
    await inForce(text(35), "grace@example.com");
    await inForce(text(25), "ada@example.com");
    for (const [i, note] of ["contract 17", "trial until the end of January", ""].entries()) {
      const entry = { quotas: { api: [gcra("steady", 500 * (i + 1), "10s")] }, priority: 5, ...(note && { note }), ...(i === 1 && { expires: "2099-01-31T00:00:00Z" }) };
      await api("PUT", `admin/tenants/${["acme", "globex", "initech"][i]}.example.com`, { body: entry, match: null, none: true });
    }
    const named = { rule: "api", key: ["192.0.2.61"], tenant: null };
    const until_ms = Date.now() + 3_600_000;
    await check("192.0.2.61");
    for (const [act, more] of [["block", { until_ms }], ["unblock", {}], ["reset", {}]]) {
      assert.equal((await api("POST", `admin/keys/${act}`, { body: { ...named, ...more }, who: "grace@example.com" })).status, 204);
    }
    let isOver = false;
    const flood = async () => {
      for (let i = 0; !isOver; i += 1) {
        const many = [1, 1, 3, 6, 4, 2, 1][Math.floor(i / 200) % 7];
        await Promise.all(Array.from({ length: many }, (_, n) => check(`192.0.2.${60 + ((i + n) % 7)}`)));
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    };
    const shots = ["light", "dark"].flatMap((scheme) => [[1280, 860], [360, 740]].map(async ([width, height]) => {
      const { page, ended } = await open({ width, height, scheme, expected: [422] });
      const shoot = (name) => page.screenshot({ path: path.join(PICTURES, `admin-${scheme}-${width}-${name}.png`), fullPage: true });
      await shoot("sign-in");
      await enter(page);
      await page.waitForTimeout(SECONDS * 1_000);
      await shoot("rates");
      await byId(page, "nav-policy").click();
      await type(page, text(30, [rule("search", 20)]));
      await byId(page, "put").waitFor();
      await shoot("policy");
      await type(page, text(0, [rule("search", 20, { mode: "none" })]));
      await seen(byId(page, "mistakes"), /2 mistakes/);
      await shoot("mistakes");
      await byId(page, "nav-tenants").click();
      await byId(page, "tenant-rows").waitFor();
      await byId(page, "tenant-id").fill("acme.example.com");
      await byId(page, "tenant-find").click();
      await byId(page, "tenant-form").waitFor();
      await shoot("tenants");
      await byId(page, "nav-keys").click();
      await byId(page, "key-rule").fill("api");
      await byId(page, "key-part-0").fill("192.0.2.61");
      await byId(page, "key-look").click();
      await byId(page, "key-words").waitFor();
      await byId(page, "explain-client").fill("192.0.2.61");
      await byId(page, "explain").click();
      await seen(byId(page, "explained"), /It would/);
      await shoot("keys");
      await byId(page, "nav-history").click();
      await byId(page, "versions").waitFor();
      await shoot("history");
      await ended();
    }));
    const traffic = flood();
    await Promise.all(shots).finally(() => { isOver = true; });
    await traffic;
  },
};

const failed = await run(tests);
await browser.close();
process.exit(failed ? 1 : 0);
