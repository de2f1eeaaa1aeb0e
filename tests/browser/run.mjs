// Runs the tests of a page, one after the other, and reports the result of each: all of them, or those whose name
// contains the first argument of the command line or TOLLGATE_ONLY.
//
// Invariant: every test runs, whatever the results before it; the number of failures is returned.

/** @param {Record<string, () => Promise<void>>} tests */
export async function run(tests) {
  let failed = 0;
  const only = process.argv[2] ?? process.env.TOLLGATE_ONLY;
  for (const [name, test] of Object.entries(tests)) {
    if (only && !name.includes(only)) continue;
    try {
      await test();
      console.log(`ok      ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n${error.stack ?? error}`);
    }
  }
  console.log(`${failed} failed`);
  return failed;
}
