// Reads a line of events of one answer, as JSON, and writes what the page shows of it: each block's channel, and its
// pieces of text, each with the number of the decision whose mark covers it, or null. A sign is an empty piece.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { Answer } = await import(pathToFileURL(process.argv[2]));

function shown(events) {
  const decisions = events.filter(({ name }) => name === "weir.decision").map(({ value }) => value);
  const number = (decision) => decisions.indexOf(decision);
  const blocks = [];
  const answer = new Answer({
    record() {},
    promptDecision() {},
    block(channel) {
      const said = [];
      blocks.push([channel, said]);
      return {
        held() {},
        retitle() {},
        text(text) { said.push([text, null]); },
        cover(mark, text) { said.push([text, mark]); },
        mark(decision, covers) {
          if (!covers) said.push(["", number(decision)]);
          return number(decision);
        },
      };
    },
  });
  for (const one of events) answer.take(one);
  answer.end();
  return blocks;
}

for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(shown(JSON.parse(line))));
