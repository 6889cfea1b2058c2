// The tries that the scripts of this folder share, as in report.py.

// Print the result of each try as a line of JSON, or the error that the library raised.
export async function report(tries) {
  for (const [name, run] of Object.entries(tries)) {
    const result = await run().catch((error) => ({ raised: error.name, told: error.message }));
    console.log(JSON.stringify({ [name]: result }));
  }
}

// The tries that need only a question: `ask` returns what a user sees.
export const asking = (ask) => ({
  answer: () => ask("What is the answer?"),
  redacted: () => ask("What is the address?"),
  ended: () => ask("Tell me of bluebird."),
  closed: () => ask("Tell me of osprey."),
  refused: () => ask("My password is hunter2."),
  replied: () => ask("My password is hunter3."),
  failed: () => ask("Please fail."),
});
