// The agent's conversation (tests/clients/agent.py), held by an SDK as its users write it.
// Input: {api, url, model, system, said, modes, parameters, results}. Output: the answers.

import { APIS, readInput } from "./sdks.mjs";

const agent = await readInput();
const { resource, final, hasText } = APIS[agent.api];
const client = resource(agent.url);
const modes = agent.modes.values();
const answers = [];

async function ask(body) {
  const mode = modes.next().value;
  if (mode === "whole") return client.create(body);
  const stream = client.stream(body);
  if (mode === "stream") return final(stream);
  for await (const event of stream) {
    if (hasText(event)) break;
  }
  stream.abort();
  return ask(body);
}

function run(name, args) {
  const called = JSON.stringify([name, args]);
  return agent.results.find((result) => JSON.stringify([result.name, result.arguments]) === called);
}

const tools = (make) => Object.entries(agent.parameters).map(([name, parameters]) => make(name, parameters));

const CONVERSATIONS = {
  async chat() {
    const messages = [{ role: "system", content: agent.system }];
    const functions = tools((name, parameters) => ({
      type: "function",
      function: { name, parameters, strict: true },
    }));
    for (const content of agent.said) {
      messages.push({ role: "user", content });
      for (let calls = [null]; calls.length; ) {
        const answer = await ask({ model: agent.model, messages, tools: functions });
        answers.push(answer);
        const message = answer.choices[0].message;
        messages.push(message);
        calls = message.tool_calls ?? [];
        for (const call of calls) {
          const result = run(call.function.name, JSON.parse(call.function.arguments));
          messages.push({ role: "tool", tool_call_id: call.id, content: result.content });
        }
      }
    }
  },

  async responses() {
    const input = [];
    const functions = tools((name, parameters) => ({ type: "function", name, parameters, strict: true }));
    const { model, system: instructions } = agent;
    for (const content of agent.said) {
      input.push({ role: "user", content });
      for (let calls = [null]; calls.length; ) {
        const answer = await ask({ model, instructions, input, tools: functions, store: false });
        answers.push(answer);
        input.push(...answer.output);
        calls = answer.output.filter((item) => item.type === "function_call");
        for (const call of calls) {
          const result = run(call.name, JSON.parse(call.arguments));
          input.push({ type: "function_call_output", call_id: call.call_id, output: result.content });
        }
      }
    }
  },

  async messages() {
    const messages = [];
    const functions = tools((name, input_schema) => ({ name, input_schema }));
    const { model, system } = agent;
    for (const content of agent.said) {
      messages.push({ role: "user", content });
      for (let calls = [null]; calls.length; ) {
        const answer = await ask({ model, max_tokens: 256, system, messages, tools: functions });
        answers.push(answer);
        messages.push({ role: "assistant", content: answer.content });
        calls = answer.content.filter((block) => block.type === "tool_use");
        const results = calls.map((call) => {
          const { content, is_error } = run(call.name, call.input);
          return { type: "tool_result", tool_use_id: call.id, content, is_error };
        });
        if (results.length) messages.push({ role: "user", content: results });
      }
    }
  },
};

await CONVERSATIONS[agent.api]();
console.log(JSON.stringify(answers));
