// The adapter by which Continue speaks to servers like OpenAI's. Usage: node continue_adapter.mjs ADDRESS
import { constructLlmApi } from "@continuedev/openai-adapters";

import { asking, report } from "./report.mjs";

const api = constructLlmApi({ provider: "openai", apiKey: "not needed", apiBase: `${process.argv[2]}/v1` });
const model = "scripted";
const never = new AbortController().signal;
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", parameters } }];

async function ask(content, options = {}) {
  const messages = [
    { role: "system", content: "You help in an editor." },
    { role: "user", content },
  ];
  const body = { model, messages, stream: true, max_tokens: 4096, ...options };
  let text = "";
  let called = "";
  let finish = null;
  for await (const { choices } of api.chatCompletionStream(body, never)) {
    text += choices[0]?.delta.content ?? "";
    called += choices[0]?.delta.tool_calls?.[0].function?.arguments ?? "";
    finish = choices[0]?.finish_reason ?? finish;
  }
  return called ? { calls: [JSON.parse(called)] } : { text, finish };
}

await report({
  ...asking(ask),
  tools: () => ask("How is the weather?", { tools }),
});
