// Vercel's AI SDK, by its providers for chat completions, responses, other OpenAI-compatible servers and the
// Messages API. Usage: node vercel_ai.mjs ADDRESS PROVIDER
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { asking, report } from "./report.mjs";

const [address, provider] = process.argv.slice(2);
const baseURL = `${address}/v1`;
const apiKey = "not needed";
const limits = { maxRetries: 0, maxOutputTokens: 256 };
const model = {
  chat: () => createOpenAI({ baseURL, apiKey }).chat("scripted"),
  responses: () => createOpenAI({ baseURL, apiKey }).responses("scripted"),
  compatible: () =>
    createOpenAICompatible({ name: "weir", baseURL, apiKey, supportsStructuredOutputs: true })("scripted"),
  messages: () => createAnthropic({ baseURL, apiKey })("scripted"),
}[provider]();
const form = z.object({ city: z.string(), degrees: z.number() });
const getWeather = tool({
  description: "The weather in a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `21 degrees in ${city}`,
});

async function ask(prompt) {
  const errors = [];
  const stream = streamText({ model, prompt, ...limits, onError: ({ error }) => errors.push(error) });
  const parts = [];
  for await (const part of stream.textStream) parts.push(part);
  if (errors.length) return { text: parts.join(""), raised: errors[0].name, told: errors[0].message };
  return { text: parts.join(""), finish: await stream.finishReason };
}

async function fillIn(prompt) {
  const output = Output.object({ schema: form });
  return (await generateText({ model, output, prompt, ...limits })).output;
}

await report({
  ...asking(ask),
  tools: async () => {
    const tools = { get_weather: getWeather };
    const stream = streamText({ model, tools, prompt: "How is the weather?", ...limits, stopWhen: stepCountIs(3) });
    const text = await stream.text;
    const calls = (await stream.steps).flatMap((step) => step.toolCalls.map((call) => call.input));
    return { text, calls };
  },
  structured: () => fillIn("Fill in the form."),
  structured_ended: () => fillIn("Fill in the form of bluebird."),
});
