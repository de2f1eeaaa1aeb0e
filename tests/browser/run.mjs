// Runs the tests of a page, one after the other, and says what came of each: all of them, or those whose name has the first
// argument of the command line in it, or what TOLLGATE_ONLY says.
//
// Invariant: every test is run, whatever became of those before; the number that failed comes back.

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
