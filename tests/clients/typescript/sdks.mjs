// The official SDKs for TypeScript: how each API is asked, and the events of its stream helper that have text.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const options = { apiKey: "any", maxRetries: 0 };

const openai = (url) => new OpenAI({ baseURL: `${url}/v1`, ...options });
const anthropic = (url) => new Anthropic({ baseURL: url, ...options });

export const APIS = {
  chat: {
    resource: (url) => openai(url).chat.completions,
    final: (stream) => stream.finalChatCompletion(),
    hasText: (chunk) => Boolean(chunk.choices[0]?.delta.content),
  },
  responses: {
    resource: (url) => openai(url).responses,
    final: (stream) => stream.finalResponse(),
    hasText: (event) => event.type === "response.output_text.delta",
  },
  messages: {
    resource: (url) => anthropic(url).messages,
    final: (stream) => stream.finalMessage(),
    hasText: (event) => event.type === "content_block_delta" && event.delta.type === "text_delta",
  },
};

export async function readInput() {
  const pieces = [];
  for await (const piece of process.stdin) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString());
}
